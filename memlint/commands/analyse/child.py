"""What happens in the child process: from a Request to Workloads, findings and declarations."""

import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from memlint.accelerator import lazy_imports
from memlint.base.errors import MemlintError, WorkloadError
from memlint.base.frames import user_lines
from memlint.commands.analyse.analysis import Analysis
from memlint.commands.analyse.description import described, fitting_of, identity, plan
from memlint.config import Settings
from memlint.libraries import installation
from memlint.lint.registry import project_rules
from memlint.lint.rule import Finding, Rule, Severity
from memlint.lint.runner import trace_findings
from memlint.memory.devices import device_named
from memlint.report import model as report
from memlint.report.from_rules import error_of, finding_of
from memlint.report.from_trace import graph_of, timeline_of
from memlint.report.model import RunFinding
from memlint.targets.workload import DEFAULT_GPU, Workload
from memlint.targets.workload_tables import workloads_from_tables
from memlint.whatif.flops import node_flops
from memlint.worker.child import rules_begin, write_partial
from memlint.worker.protocol import LEFT, Request, Result
from memlint.workloads import availability, placeholders, torchvision_schemas, user_errors
from memlint.workloads.declaration_draft import declaration, draft
from memlint.workloads.discover import Discovery, LeftOut, find_workloads

OVER_BUDGET = "MEM010"
_TOLD_SECONDS = 1.0
"""Between two records of the findings that there are."""
_OVERRIDES = (
    *("batch", "dimensions", "dtype", "mode", "optimizer", "gpu", "torch", "context"),
    *("strategy", "world_size", "rank"),
)


def analyse(request: Request) -> Result:
    """Analyse every Workload of the target. Raises MemlintError where there is none to analyse."""
    root, settings = Path(request.root), request.settings
    requested = find_requested(request)
    rules = project_rules(settings, root).chosen(settings)
    workloads: list[report.Workload] = []
    findings: list[RunFinding] = []
    declarations: list[str] = []
    traced_lines: defaultdict[str, set[int]] = defaultdict(set)

    def result() -> Result:
        return Result(
            torch=torch.__version__,
            workloads=workloads,
            findings=findings,
            skipped=[_skipped(each, request) for each in requested.left_out],
            declarations=declarations,
            traced_lines={path: sorted(lines) for path, lines in traced_lines.items()},
        )

    for number, workload in enumerate(requested.workloads):
        budget = settings.budget_of(workload.name)
        if len(requested.workloads) > 1:
            write_partial(_unfinished(result(), requested.workloads[number:], settings))
        try:
            analysis = Analysis.of(workload, root, budget.max if budget else None, thorough=request.thorough)
        except MemlintError as error:
            failure = error_of(error, user_lines(error))
            workloads.append(report.Workload(**identity(workload, budget), error=failure))
            declarations += _skeletons(request, root, [(workload, error)])
            continue
        known = described(analysis, budget).model_copy(update=details(analysis, request))
        write_partial(_without_findings(result(), known, requested.workloads[number + 1 :]))
        rules_begin()
        parts = described_with_findings(analysis, rules, request, position=len(workloads))
        workloads.append(parts.workload)
        findings += parts.findings
        for path, lines in parts.lines.items():
            traced_lines[path] |= lines
        if request.init and analysis.program is not None:
            declarations.append(declaration(analysis.workload, analysis.program.assumptions, root))
    if not requested.workloads:
        unbuilt = ((_workload_of(each.name, request), WorkloadError(each.reason)) for each in requested.left_out)
        declarations += _skeletons(request, root, unbuilt)
    return result()


def _unfinished(done: Result, left: Sequence[Workload], settings: Settings) -> Result:
    """What there is, with the Workload that is analysed now; which of those after it can be asked for by name."""
    alone = [each for each in left[1:] if each.origin == "discovered"]
    begun = [report.Workload(**identity(each, settings.budget_of(each.name))) for each in left if each not in alone]
    names = [each.qualname for each in alone]
    return done.model_copy(update={"workloads": [*done.workloads, *begun], "detail": {LEFT: names}})


def _without_findings(done: Result, workload: report.Workload, left: Sequence[Workload]) -> Result:
    """What there is, with a Workload whose rules may take longer than the time limit."""
    reason = f"{workload.name}: its rules were not finished when it was stopped: findings are missing"
    hint = "Allow more with --timeout SECONDS, or choose fewer rules with --select."
    skipped = [*done.skipped, report.Skipped(name=workload.name, reason=reason, hint=hint)]
    names = [each.qualname for each in left if each.origin == "discovered"]
    update = {"workloads": [*done.workloads, workload], "skipped": skipped, "detail": {LEFT: names}}
    return done.model_copy(update=update)


def _skipped(left_out: LeftOut, request: Request) -> report.Skipped:
    command = f"Type memlint check '{request.target}::{left_out.call}', which runs, with the sizes that you have."
    hint = command if left_out.call else left_out.hint
    return report.Skipped(path=request.path, name=left_out.name, reason=left_out.reason, hint=hint)


def _workload_of(name: str, request: Request) -> Workload:
    """Something in the file that was asked for, with the settings of the command line."""
    overrides = {key: value for key in _OVERRIDES if (value := getattr(request.settings, key)) is not None}
    return Workload(name, f"{request.path}::{name}", request.path or "", name, **overrides)


def _skeletons(request: Request, root: Path, failed: Iterable[tuple[Workload, MemlintError]]) -> Iterator[str]:
    """With `init`: declarations to be filled in of what cannot be analysed."""
    for workload, error in failed if request.init else ():
        with suppress(MemlintError):  # not to be loaded: the error says so
            yield draft(workload, root, error)


def find_requested(request: Request) -> Discovery:
    """Load the target, and give its Workloads: in a file that nobody named only those that are declared.

    Raises MemlintError where it cannot be loaded.
    """
    torchvision_schemas.install()
    lazy_imports.run_eagerly()
    installation.install(request.settings.op)
    root, settings = Path(request.root), request.settings
    configured = workloads_from_tables(list(settings.workload), root / "pyproject.toml", lost={})
    placeholders.expect(settings.stub)
    user_errors.answer_to(f"memlint check {shlex.quote(request.target)}")
    availability.expect(device_named(settings.gpu or DEFAULT_GPU))
    overrides = {name: value for name in _OVERRIDES if (value := getattr(settings, name)) is not None}
    target = request.path or request.target
    if request.path and request.qualname:
        target += f"::{request.call or request.qualname}"
    discovered = find_workloads(target, root, configured, overrides)
    workloads = tuple(each for each in discovered.workloads if request.named or each.origin != "discovered")
    return discovered._replace(workloads=workloads)


class Described(NamedTuple):
    """One Workload, what rules found in it, and by file the lines that they saw at work."""

    workload: report.Workload
    findings: list[RunFinding]
    lines: dict[str, set[int]]


def described_with_findings(
    analysis: Analysis,
    rules: tuple[Rule, ...],
    request: Request,
    *,
    position: int = 0,
    so_far: Callable[[list[RunFinding]], None] = lambda _findings: None,
) -> Described:
    """Give what `request` asks of a Workload, which stands at `position` in the Result.

    `so_far` is called now and then with the findings that there are, while rules go on.
    """
    name = analysis.workload.name
    budget = request.settings.budget_of(name)
    lenient = budget is not None and budget.level == "warning"
    findings: list[RunFinding] = []
    told = time.monotonic()
    for each in _findings(analysis, rules, lenient):
        findings.append(finding_of(each, name, position))
        if time.monotonic() - told > _TOLD_SECONDS:
            so_far(findings)
            told = time.monotonic()
    record = described(analysis, budget)  # with what the rules have simulated
    if request.plan:
        so_far(findings)
    trace = analysis.trace
    added = {
        "fitting": fitting_of(analysis, request.settings.gpu_prices),
        "plan": plan(analysis, dynamics=request.allow_dynamics) if request.plan else None,
        **details(analysis, request),
    }
    lines: defaultdict[str, set[int]] = defaultdict(set)
    for frame in filter(None, {*(node.frame for node in trace.nodes), *(b.frame for b in trace.buffers)}):
        lines[frame.of_project.path].add(frame.of_project.line)
    return Described(record.model_copy(update=added), findings, lines)


def details(analysis: Analysis, request: Request) -> dict[str, object]:
    """The parts of a Workload that say what happened when, if `request` wants them."""
    return {
        "timeline": timeline_of(analysis.timeline, analysis.trace.nodes) if request.timeline else None,
        "graph": graph_of(analysis.trace, node_flops) if request.graph else None,
    }


def _findings(analysis: Analysis, rules: tuple[Rule, ...], lenient: bool) -> Iterator[Finding]:
    """Everything that rules of traced steps find. `lenient`: an exceeded budget fails nothing."""
    for finding in trace_findings(analysis, rules):
        is_allowed = lenient and finding.code == OVER_BUDGET
        yield replace(finding, severity=Severity.INFO) if is_allowed else finding

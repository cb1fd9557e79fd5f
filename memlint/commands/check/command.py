"""`memlint check`: from targets to a Report. Sources are read here, user code runs only in workers."""

from __future__ import annotations

import importlib.util
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlint.base.errors import MemlintError, TargetError
from memlint.base.version import __version__
from memlint.commands.check.rules import Choice, choose
from memlint.commands.check.settled import (
    computed_first,
    keep_needed_comments,
    leave_out,
    once_per_rule,
    unused_in_traces,
)
from memlint.commands.check.settled import statistics as count_findings
from memlint.commands.targets import distinct, passed_over, resolve, together
from memlint.cuda.devices import device_named
from memlint.lint.suppression import unsuppressed
from memlint.report.findings_by_workload import moved
from memlint.report.from_rules import error_of, failed_target, finding_of
from memlint.report.model import Baseline as KnownFindings
from memlint.report.model import Finding, Report, RunFinding, Settings, Skipped, Sweep, Workload
from memlint.report.paths import relative
from memlint.source.files import Unreadable
from memlint.source.text import Source
from memlint.worker import answer_cache as answers
from memlint.worker.protocol import ANALYSE, Limits, Task
from memlint.workloads.find.target import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memlint import config
    from memlint.commands.targets import Targets
    from memlint.lint import rule
    from memlint.lint.baseline import Baseline
    from memlint.lint.fixes import Fixed
    from memlint.worker.protocol import Answer, Request

_INSTALL = "Install it with: pip install 'torch-memlint[torch]'"
_PATIENCE_FOR_PLANS = 5
"""A plan traces many programs: it may take this many times the time limit."""
_SWEEP = "memlint.commands.sweep.child:around"
_BESIDE = {"detail": {"around": True}, **dict.fromkeys(("plan", "thorough", "timeline", "graph", "init"), False)}


@dataclass(slots=True)
class Run:
    """What a run gathered so far; `report` is what it says at the end."""

    settings: Settings = field(default_factory=Settings)
    torch: str | None = None
    workloads: list[Workload] = field(default_factory=list)
    findings: list[RunFinding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    declarations: list[str] = field(default_factory=list)
    """With `init`: what to add to the configuration."""
    outputs: list[tuple[str, str, str]] = field(default_factory=list)
    """For each target whose code ran: its name, stdout and stderr."""
    empty: list[tuple[Request, list[Skipped]]] = field(default_factory=list)
    """Files that were named and gave no Workload, with what was left out of each."""
    traced: list[RunFinding] = field(default_factory=list)
    """Everything that rules of traced steps found, suppressed or not."""
    traced_lines: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By absolute path: the lines those rules have seen at work."""
    files: list[Path] = field(default_factory=list)
    """The Python files that were named, or found in directories that were."""
    names: dict[str, str] = field(default_factory=dict)
    """Of the rules, by code."""
    correctable: Counter[rule.Applicability] = field(default_factory=Counter)
    """How many of the source rules' findings have a Correction."""
    baseline: KnownFindings | None = None
    executed: bool = False
    """Whether Workloads could be run."""

    @property
    def complete(self) -> bool:
        """Whether every Workload was run and analysed."""
        return self.executed and not any(workload.error for workload in self.workloads)

    def report(self, *, statistics: bool = False) -> Report:
        """Everything in a fixed order, with paths written relative to the current directory, or as they were typed."""
        written = relative([finding.model_dump() for finding in self.findings], Path.cwd(), self.files)
        found = computed_first(map(RunFinding.model_validate, written))
        found.sort(key=lambda finding: (finding.path, finding.line, finding.column, finding.code))
        report = Report(
            tool=f"memlint {__version__}",
            torch=self.torch,
            settings=self.settings,
            workloads=self.workloads,
            findings=[Finding(**each.model_dump(exclude={"subject"})) for each in once_per_rule(dict.fromkeys(found))],
            skipped=self.skipped,
            baseline=self.baseline,
            statistics=count_findings(found, self.names) if statistics else None,
        )
        return Report.model_validate(relative(report.model_dump(), Path.cwd(), self.files))


def check(
    arguments: Sequence[str],
    options: Mapping[str, object],
    *,
    execute: bool = True,
    init: bool = False,
    plan: bool = False,
    allow_dynamics: bool = False,
    thorough: bool = False,
    timeline: bool = False,
    graph: bool = False,
    baseline: Path | None = None,
    cache: bool = True,
    sweep: bool = False,
    affected: bool = False,
    force_exclude: bool = False,
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
) -> Run:
    """Run the source rules over `arguments`, and unless `execute` is off the Workloads in them.

    `options` are those of Settings that the command line gave; with `plan` the changes are found that bring each
    Workload below its limit, with `allow_dynamics` also those that change the course of training; with `thorough` rules
    simulate alternatives as well; with `timeline` the Report holds the lifetime of every Buffer, with `graph` the last
    step as a graph; with `sweep` batch sizes around each Workload's are estimated beside it, unless its configuration
    says no; findings in the file `baseline` are left out; with `cache` findings of source rules and answers of workers
    are kept from run to run; with `affected` the arguments are files that were changed, and those Workloads of their
    projects are run that one of them is a part of; with `force_exclude` what the configuration excludes is left out
    even if it is named; `on_wait` is called with the target and the seconds it has taken so far. Raises MemlintError
    for configuration and for an only argument that make no sense; what goes wrong with one target of several stands in
    the Report.
    """
    known = _baseline(baseline) if baseline is not None else None
    wrong: dict[str, MemlintError] = {}
    targets = _targets(
        arguments, options, init=init, affected=affected, force_exclude=force_exclude, cache=cache, wrong=wrong
    )
    asked = {"plan": plan, "allow_dynamics": allow_dynamics, "thorough": thorough, "timeline": timeline, "graph": graph}
    chosen = choose(targets, execute=execute)
    lost = {name: error for target in targets if execute for name, error in target.lost}
    failures = [_failed(each, error) for each, error in {**wrong, **lost}.items()]
    run = Run(skipped=list(passed_over(targets)), workloads=failures)
    for target, choice in zip(targets, chosen, strict=True):
        device_named(target.settings.gpu or "cpu")
        run.settings = _settings(target.settings, execute=execute)
        _lint(target, choice, run, cache=cache)
    requests = [request for target in targets for request in target.requests]
    unreadable = {workload.target for workload in run.workloads}
    if not execute:
        run.skipped += [Skipped(reason="no model was built, because of --no-exec")] if requests else []
    elif importlib.util.find_spec("torch") is None:
        _without_torch(requests, run)
    else:
        to_run = [
            (request.model_copy(update=asked), choice)
            for target, choice in zip(targets, chosen, strict=True)
            for request in target.requests
            if request.target not in unreadable
        ]
        requests = [request for request, _choice in to_run]
        beside = [request.model_copy(update=_BESIDE) for request in requests if sweep and request.settings.sweep]
        given = _answers([*requests, *beside], on_wait, cache=cache)
        sweeps = _sweeps(beside, given[len(requests) :])
        for (request, choice), answer in zip(to_run, given, strict=False):
            _take(request, answer, choice, run, sweeps)
        for target, choice in zip(targets, chosen, strict=True):
            run.findings += unused_in_traces(target, choice, run)
    run.executed = execute and importlib.util.find_spec("torch") is not None
    keep_needed_comments(chosen, run)
    if not execute and any(target.settings.rule_paths for target in targets):
        run.skipped.append(Skipped(reason="the rules in rule-paths were not loaded, because of --no-exec"))
    _tell_empty(run)
    if run.complete:
        run.skipped += _idle_budgets(arguments, targets, run)
    if known is not None:
        leave_out(known, targets, chosen, run)
    return run


def corrections(
    arguments: Sequence[str],
    options: Mapping[str, object],
    *,
    execute: bool = True,
    cache: bool = True,
    unsafe: bool = False,
    affected: bool = False,
    force_exclude: bool = False,
) -> list[Fixed]:
    """What source rules would do to each file in `arguments`; nothing is written. `unsafe`: also what may change more.

    `affected` and `force_exclude` are those of `check`. Raises MemlintError for arguments and configuration that make
    no sense.
    """
    from memlint.lint.fixes import fix_file  # noqa: PLC0415

    targets = _targets(arguments, options, affected=affected, force_exclude=force_exclude, cache=cache)
    fixed = []
    for target, choice in zip(targets, choose(targets, execute=execute), strict=True):
        concerned = {found.path for found in choice.findings(target, target.files, cache=cache) if found.correction}
        done = (fix_file(path, choice.findings_in, unsafe=unsafe) for path in sorted(concerned))
        fixed += [each for each in done if each is not None]
    return fixed


def exit_status(report: Report) -> int:
    """0: clean; 1: a warning, an error or a limit exceeded; 2: a target that could not be analysed."""
    if any(workload.error is not None for workload in report.workloads):
        return 2
    verdicts = (verdict for workload in report.workloads for verdict in (workload.verdict, workload.budget) if verdict)
    exceeded = any(verdict.outcome == "does not fit" and verdict.level == "error" for verdict in verdicts)
    return int(exceeded or any(finding.severity in ("error", "warning") for finding in report.findings))


def _targets(
    arguments: Sequence[str],
    options: Mapping[str, object],
    *,
    affected: bool,
    force_exclude: bool,
    cache: bool,
    init: bool = False,
    wrong: dict[str, MemlintError] | None = None,
) -> list[Targets]:
    """What the arguments stand for. With `wrong` those of several that are no target go there and are not raised."""
    resolved: list[Targets] = []
    try:
        if affected:
            from memlint.commands.affected import resolve_affected  # noqa: PLC0415

            resolved = resolve_affected(arguments, options, init=init, force_exclude=force_exclude, cache=cache)
        else:
            for each in arguments:
                try:
                    resolved.append(resolve(each, options, init=init, force_exclude=force_exclude))
                except TargetError as error:
                    if wrong is None or len(arguments) == 1:
                        raise
                    wrong[each] = error
    except OSError as error:
        raise TargetError(f"{error.filename} cannot be read: {error.strerror}", "Is it a path?") from error
    return together(distinct(resolved))


def _baseline(file: Path) -> Baseline:
    from memlint.lint.baseline import Baseline  # noqa: PLC0415

    return Baseline.read(file)


def _lint(target: Targets, choice: Choice, run: Run, *, cache: bool) -> None:
    """Source rules over the files of one target. A file that was named and cannot be read is an error."""
    unreadable = set()
    for request in target.requests:
        if request.named and request.path and request.path.endswith(".py"):
            try:
                Source.read(request.path)
            except Unreadable as error:
                wrong = TargetError(f"{error.reason} (line {error.line})", "Correct the file.")
                run.workloads.append(_failed(request.target, wrong))
                unreadable.add(request.path)
    files = [file for file in target.files if not unreadable or str(file.resolve()) not in unreadable]
    registry = choice.registry
    found = choice.findings(target, files, cache=cache)
    run.findings += [finding_of(finding) for finding in (*choice.wanted(registry.problems), *found)]
    run.correctable.update(finding.correction.applicability for finding in found if finding.correction)
    run.files += target.files
    run.names |= {rule.code: rule.name for rule in registry.rules}


def _without_torch(requests: Sequence[Request], run: Run) -> None:
    by_name = [request for request in requests if request.qualname or request.module or not _is_python(request)]
    error = TargetError("PyTorch is not installed, so no model can be built", _INSTALL)
    run.workloads += [_failed(request.target, error) for request in by_name]
    if len(requests) > len(by_name):
        reason = "PyTorch is not installed: only the source rules ran, no model was built"
        run.skipped.append(Skipped(reason=reason, hint=_INSTALL))


def _is_python(request: Request) -> bool:
    return request.path is not None and request.path.endswith(".py")


def _answers(requests: Sequence[Request], on_wait: Callable[[str, float], None], *, cache: bool) -> list[Answer]:
    """The Answer to each request: those that are kept, and those of workers, several of which may run at a time."""
    kept = [answers.read(request) if cache else None for request in requests]
    missing = [number for number, answer in enumerate(kept) if answer is None]
    if not missing:
        return [answer for answer in kept if answer is not None]
    from memlint.worker.parallel import answers_to  # noqa: PLC0415

    tasks = [Task(requests[n], _limits(requests[n]), _SWEEP if requests[n].detail else ANALYSE) for n in missing]
    given = {}
    for place, answer in answers_to(tasks, on_wait=lambda task, seconds: on_wait(task.request.target, seconds)):
        number = missing[place]
        given[number] = answer
        if cache:
            answers.write(requests[number], answer)
    return [given[number] if answer is None else answer for number, answer in enumerate(kept)]


def _sweeps(requests: Sequence[Request], given: Sequence[Answer]) -> dict[tuple[str, str], list[Sweep]]:
    """By target as asked for and name of the Workload; what could not be made is left out."""
    found = defaultdict(list)
    for request, answer in zip(requests, given, strict=True):
        result = answer.result or answer.partial
        told: Any = result.detail["sweeps"] if result else []
        for sweep in map(Sweep.model_validate, told):
            found[request.target, sweep.name].append(sweep)
    return found


def _limits(request: Request) -> Limits:
    settings = request.settings
    patience = _PATIENCE_FOR_PLANS if request.plan else 1
    return Limits(seconds=settings.timeout * patience, nbytes=settings.memory_limit)


def _take(
    request: Request, answer: Answer, choice: Choice, run: Run, sweeps: Mapping[tuple[str, str], list[Sweep]]
) -> None:
    """Put what a worker answered into the run."""
    run.outputs.append((request.target, answer.stdout, answer.stderr))
    if answer.error is not None:
        run.workloads.append(_failed(request.target, answer.error, answer.traceback))
        return
    result = answer.result
    assert result is not None
    run.torch = result.torch or run.torch
    first = len(run.workloads)
    found = [moved(finding, first) for finding in result.findings]
    for workload in result.workloads:
        beside = sweeps.get((request.target, workload.name), [])
        run.workloads.append(workload.model_copy(update={"sweep": beside}) if workload.error is None else workload)
    run.findings += choice.wanted(unsuppressed(found))
    run.traced += found
    for path, lines in result.traced_lines.items():
        run.traced_lines[path].update(lines)
    run.declarations += result.declarations
    if request.named and not result.workloads:
        run.empty.append((request, result.skipped))
    else:
        run.skipped += result.skipped


def _tell_empty(run: Run) -> None:
    """Files that were named and gave no Workload: an error if nothing else was analysed, else only skipped."""
    hint = "Name the class or function that gives the model, as in model.py::build, or declare a memlint_workload."
    analysed = any(workload.error is None for workload in run.workloads)
    for request, left_out in run.empty:
        if analysed:
            run.skipped += left_out or [Skipped(path=request.path, reason="no torch.nn.Module found", hint=hint)]
            continue
        reasons = "; ".join(entry.reason for entry in left_out)
        message = f"no model in it can be built: {reasons}" if left_out else "no torch.nn.Module found"
        run.workloads.append(_failed(request.target, TargetError(message, hint)))


def _idle_budgets(arguments: Sequence[str], targets: Sequence[Targets], run: Run) -> Iterator[Skipped]:
    """Budgets of projects that were analysed as a whole and have no Workload of that name."""
    whole = {Path(each).resolve() for each in arguments if Path(each).is_dir()}
    names = [workload.name for workload in run.workloads]
    budgets = {name for each in targets if each.root in whole for name in each.settings.budget}
    for name in sorted(budgets - {"*", *names}):
        close = get_close_matches(name, names, n=1)
        yield Skipped(
            name=f"budget {name}",
            reason="no workload that was analysed has this name",
            hint=f"Did you mean {close[0]!r}?" if close else "Name a workload that is declared, or write '*' for all.",
        )


def _failed(target: str, error: MemlintError, traceback: tuple[str, ...] = ()) -> Workload:
    file = str(Path(target.partition(SEPARATOR)[0]).resolve())
    message = error.message.removeprefix(f"{file} ").removeprefix(f"{target} ")  # which is said already
    changed = {"message": message, "hint": error.hint or "See the whole traceback with -v."}
    return failed_target(target, error_of(error, traceback).model_copy(update=changed))


def _settings(settings: config.Settings, *, execute: bool) -> Settings:
    budget = settings.budget.get("*")
    return Settings(
        batch=settings.batch,
        dtype=settings.dtype,
        mode=settings.mode,
        optimizer=settings.optimizer,
        gpu=settings.gpu,
        budget=budget.max if budget else None,
        select=list(settings.select),
        extend_select=list(settings.extend_select),
        ignore=list(settings.ignore),
        no_exec=not execute,
    )

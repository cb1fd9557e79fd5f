"""What happens in the child process: from a target to Workloads, Traces, Estimates and findings."""

from __future__ import annotations

import contextlib
import functools
import linecache
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from memlint.accelerator import lazy_imports
from memlint.accelerator.device import NAME
from memlint.base.errors import MemlintError, WorkloadError
from memlint.base.frames import user_lines
from memlint.cuda.allocator.reference import AllocatorSettings
from memlint.cuda.devices import Device, device_named
from memlint.lint import rule as lint
from memlint.lint.registry import project_rules
from memlint.lint.runner import step_findings, trace_findings
from memlint.memory.estimate import Estimate, estimate
from memlint.memory.liveness import dead_at, least_peak
from memlint.memory.timeline import Timeline
from memlint.report import model as report
from memlint.report.from_trace import course_of, peak_of, place_of, plan_of, timeline_of, what_ifs_of
from memlint.tracing.recorder import trace_program
from memlint.tracing.records import Assumption, Buffer, Category, Frame, Trace
from memlint.tracing.storages import Storages, storages_of
from memlint.whatif.change import ChangedProgram, NotApplicableError
from memlint.whatif.holders import find_holders
from memlint.whatif.long_run import run_longer
from memlint.whatif.plan import Planner
from memlint.whatif.simulation import Simulation, WhatIf
from memlint.worker.protocol import Request, Result
from memlint.workloads.build.construct import completed_program
from memlint.workloads.find import torchvision_schemas
from memlint.workloads.find.discover import Found, complete, find_workloads
from memlint.workloads.pyproject import workloads_from_tables
from memlint.workloads.rendering import render_declaration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from memlint.config import Budget
    from memlint.memory.retention import Holder, LongRun
    from memlint.whatif.change import Change
    from memlint.workloads.build.program import Program
    from memlint.workloads.spec import Workload

NUM_LISTED = 200
"""Buffers, modules and lines listed in a Report; the rest is counted."""
OVER_BUDGET = "MEM010"
_OVERRIDES = ("batch", "dimensions", "dtype", "mode", "optimizer", "gpu")


def analyse(request: Request) -> Result:
    """Analyse every Workload of the target asked for. Raises MemlintError where there is none to analyse."""
    root = Path(request.root)
    settings = request.settings
    found = find_asked(request)
    rules = project_rules(settings, root).chosen(settings)
    workloads, findings, declarations = [], [], []
    traced_lines: defaultdict[str, set[int]] = defaultdict(set)
    for workload in found.workloads:
        budget = settings.budget_of(workload.name)
        try:
            analysis = Analysis.of(workload, root, budget.max if budget else None, thorough=request.thorough)
        except MemlintError as error:
            workloads.append(_failed(workload, budget, error))
            continue
        lenient = budget is not None and budget.level == "warning"
        found_here = (*trace_findings(analysis, rules), *step_findings(analysis, rules))
        findings += [_finding(f, workload.name, len(workloads), lenient) for f in found_here]
        described = analysis.described(budget)  # with what the rules have simulated
        plan = analysis.plan(dynamics=request.allow_dynamics) if request.plan else None
        whole = timeline_of(analysis.timeline, analysis.trace.nodes) if request.timeline else None
        workloads.append(described.model_copy(update={"plan": plan, "timeline": whole}))
        for frame in _frames(analysis.trace):
            traced_lines[frame.path].add(frame.line)
        if request.init:
            declarations.append(render_declaration(analysis.workload, analysis.program.assumptions, root))
    return Result(
        torch=torch.__version__,
        workloads=workloads,
        findings=findings,
        skipped=[report.Skipped(path=request.path, name=n.name, reason=n.reason) for n in found.left_out],
        declarations=declarations,
        traced_lines={path: sorted(lines) for path, lines in traced_lines.items()},
    )


def find_asked(request: Request) -> Found:
    """Load the target asked for, and give its Workloads: in a file that nobody named only those that are declared.

    Raises MemlintError where it cannot be loaded.
    """
    torchvision_schemas.install()
    lazy_imports.run_eagerly()
    root = Path(request.root)
    settings = request.settings
    configured = workloads_from_tables(list(settings.workload), root / "pyproject.toml", lost={})
    overrides = {k: v for k in _OVERRIDES if (v := getattr(settings, k)) is not None}
    text = (
        request.target if request.path is None else request.path + (f"::{request.qualname}" if request.qualname else "")
    )
    found = find_workloads(text, root, configured, overrides)
    asked = tuple(each for each in found.workloads if request.named or each.origin != "discovered")
    return found._replace(workloads=asked)


def _frames(trace: Trace) -> set[Frame]:
    """The lines that made something in a Trace."""
    frames = {*(node.frame for node in trace.nodes), *(buffer.frame for buffer in trace.buffers)}
    return {frame for frame in frames if frame is not None}


@dataclass
class Analysis:
    """One Workload, traced: what rules may ask about it."""

    workload: Workload
    device: Device
    trace: Trace
    timeline: Timeline
    estimate: Estimate
    budget: int | None
    program: Program
    rebuild: Callable[[], Program]
    simulation: Simulation
    thorough: bool = False
    _holders: dict[frozenset[int], Mapping[int, Holder]] = field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, root: Path, budget: int | None = None, *, thorough: bool = False) -> Analysis:
        """Trace `workload`. Raises WorkloadError for what its code raises, TraceError for what cannot be traced."""
        device = device_named(workload.gpu)
        completed, assumptions = complete(workload, root)
        rebuild = functools.partial(completed_program, completed, root)
        program = rebuild()
        program.assumptions[:0] = [a for a in assumptions if a not in program.assumptions]
        settings = AllocatorSettings.parse(completed.allocator)
        trace = traced(program, device, settings)
        if lazy_imports.Compilation.asked:
            program.assumptions.append(
                Assumption(
                    "torch.compile is left out: what it would compile runs eagerly, and may take less memory", None
                )
            )
        if not device.is_cuda and any(node.op.startswith("aten.convolution") for node in trace.nodes):
            program.assumptions.append(
                Assumption("the copies that oneDNN makes in layouts of its own for convolutions are not counted", None)
            )
        timeline = Timeline.of(trace)
        peak = estimate(timeline, device, trace.nodes, settings)
        run = functools.partial(traced, device=device, allocator=settings)
        simulation = Simulation(rebuild, run, device, settings, program=program, trace=trace, estimate=peak)
        return cls(completed, device, trace, timeline, peak, budget, program, rebuild, simulation, thorough)

    def retrace(self, change: Change) -> Estimate | None:
        """Estimate of the changed program; None where the change does not apply to it."""
        answer = self.simulation.what_if(change)
        return answer.estimate if answer is not None else None

    def what_if(self, *changes: Change) -> WhatIf | None:
        """What the changes do together; None where one does not apply or the program fails with it."""
        return self.simulation.what_if(*changes)

    def holders(self, buffer_ids: Collection[int]) -> Mapping[int, Holder]:
        """Which variables hold these Buffers at the peak."""
        wanted = frozenset(buffer_ids)
        if wanted not in self._holders:
            self._holders[wanted] = self._find_holders(self.rebuild(), self.estimate.peak_event, wanted)
        return self._holders[wanted]

    def _find_holders(self, program: Any, event: int, buffer_ids: Collection[int]) -> dict[int, Holder]:
        return find_holders(program, self.device, event, buffer_ids, self.simulation.settings)

    @functools.cached_property
    def long_run(self) -> LongRun:
        """Four steps in a row, and the variables that keep what these leave behind."""
        return run_longer(self.rebuild(), self.device, self.simulation.settings)

    # --- as the Report says it

    def plan(self, *, dynamics: bool) -> report.Plan | None:
        """What brings the peak below the budget, or into the GPU; None where there is neither."""
        limit = self._limit()
        if limit is None:
            return None
        planner = Planner(self.workload, self.simulation, self._holders_with, limit.limit, limit.measure, dynamics)
        return plan_of(planner.plan(), limit.limit_name, self.trace)

    def _limit(self) -> report.Verdict | None:
        if self.budget:
            return _verdict(self.estimate, self.budget, "budget")
        return _gpu_verdict(self.estimate, self.device, self.workload.allocator) if self.device.is_cuda else None

    def _holders_with(
        self, changes: tuple[Change, ...], event: int, buffer_ids: Collection[int]
    ) -> Mapping[int, Holder]:
        traced = (change for change in changes if not change.is_edit)
        return self._find_holders(ChangedProgram(self.rebuild(), *traced), event, buffer_ids)

    def described(self, budget: Budget | None) -> report.Workload:
        """The Workload with its Estimate, its assumptions and whether it fits."""
        workload, peak = self.workload, self.estimate
        texts = [*self.program.assumptions, *self.trace.assumptions]
        return report.Workload(
            **_identity(workload, budget),
            assumptions=[
                report.Assumption(
                    text=a.text, path=a.frame.path if a.frame else None, line=a.frame.line if a.frame else None
                )
                for a in dict.fromkeys(texts)
            ],
            estimate=self._estimate(),
            verdict=_gpu_verdict(peak, self.device, workload.allocator) if self.device.is_cuda else None,
            budget=_verdict(peak, self.budget, "budget", budget.level if budget else "error") if self.budget else None,
            what_ifs=what_ifs_of(self.simulation.answers, self.trace),
        )

    def _estimate(self) -> report.Estimate:
        peak = self.estimate
        dead = {buffer.id for buffer in dead_at(self.trace, peak.peak_event)} if peak.peak_event >= 0 else set()
        types = dict(self.trace.modules)

        def why(b: Buffer) -> str:
            if b.id in dead:
                return "held by a Python reference"
            if b.category is Category.ACTIVATION:
                return "saved for backward"
            return "in use" if b.category is Category.TEMPORARY else ""

        return report.Estimate(
            peak=peak_of(peak),
            phase=peak.phase.value,
            op=peak.op,
            **place_of(peak.frame),
            module=peak.module,
            phase_peaks={phase.value: n for phase, n in peak.phase_peaks.items()},
            least=least_peak(self.trace),
            categories={category.value: n for category, n in peak.categories.items()},
            at_peak=[
                report.AliveBuffer(
                    nbytes=b.nbytes,
                    dtype=b.dtype,
                    shape=b.shape,
                    category=b.category.value,
                    op=b.op,
                    **place_of(b.frame),
                    module=b.module,
                    name=b.name,
                    why=why(b),
                )
                for b in peak.at_peak[:NUM_LISTED]
            ],
            num_at_peak=len(peak.at_peak),
            course=course_of(self.timeline, self.trace.nodes),
            by_module=[
                report.ModuleBytes(
                    module=module,
                    type=types.get(module, ""),
                    nbytes=_sum(group),
                    num_buffers=len(group),
                    categories=_categories(group),
                )
                for module, group in _groups(peak.at_peak, _owner)
            ],
            by_line=[
                report.LineBytes(
                    **place_of(frame),
                    nbytes=_sum(group),
                    num_buffers=len(group),
                    dtype=group[0].dtype,
                    shape=group[0].shape,
                    categories=_categories(group),
                    module=_pattern({b.module for b in group}),
                    why=_largest(group, why),
                    source=_source_line(frame),
                )
                for frame, group in _groups(
                    [b for b in peak.at_peak if b.category not in _NOT_BY_LINE], lambda b: b.frame
                )
            ],
        )


_NOT_BY_LINE = (Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE, Category.GRADIENT, Category.WORKSPACE)


def _owner(b: Buffer) -> str:
    """The module a Buffer belongs to: of a named tensor that of its parameter, else where it was made."""
    if b.category in _NOT_BY_LINE and b.name:
        return b.name.rpartition(" of ")[2].rpartition(".")[0]
    return b.module


def traced(program: Any, device: Device, allocator: AllocatorSettings | None = None) -> Trace:
    """Trace a program of a Workload.

    Raises WorkloadError for what its code raises, TraceError for what cannot be traced.
    """
    with _errors_named():
        return trace_program(program, device, allocator).trace


def taken(program: Any, device: Device, allocator: AllocatorSettings | None = None) -> Storages:
    """Run a program of a Workload for its storages alone; raises the same."""
    with _errors_named():
        return storages_of(program, device, allocator)


@contextlib.contextmanager
def _errors_named() -> Iterator[None]:
    """Let whatever the code of a Workload raises be a WorkloadError."""
    try:
        yield
    except (MemlintError, NotApplicableError):
        raise
    except Exception as error:
        lines = user_lines(error)
        where = f" at {lines[-1]}" if lines else ""
        raise WorkloadError(
            f"the step raised {type(error).__name__}{where}: {str(error).replace(NAME, 'cuda')}"
        ) from error


def _identity(workload: Workload, budget: Budget | None) -> dict[str, Any]:
    return {
        "name": workload.name,
        "target": workload.target,
        "mode": workload.mode,
        "batch": workload.batch,
        "dtype": workload.dtype,
        "optimizer": workload.optimizer if workload.mode == "train" else None,
        "gpu": workload.gpu,
        "allocator": workload.allocator,
        "origin": workload.origin,
        "allowed": report.Budget.model_validate(budget.model_dump()) if budget else None,
    }


def _failed(workload: Workload, budget: Budget | None, error: MemlintError) -> report.Workload:
    kind: Any = type(error).__name__.removesuffix("Error").lower()
    return report.Workload(
        **_identity(workload, budget),
        error=report.Error(kind=kind, message=error.message, hint=error.hint, traceback=user_lines(error)),
    )


def _finding(finding: lint.Finding, workload: str, position: int, lenient: bool) -> report.Finding:
    """`lenient`: an exceeded budget is told and fails nothing."""
    severity = lint.Severity.INFO if lenient and finding.code == OVER_BUDGET else finding.severity
    return report.Finding(
        code=finding.code,
        path=finding.path,
        line=finding.line,
        column=finding.column,
        message=finding.message,
        severity=severity.value,
        confidence=finding.confidence.value,
        nbytes=finding.nbytes,
        peak_change=finding.peak_change,
        fix=finding.fix,
        workload=workload,
        workload_position=position,
    )


def _gpu_verdict(peak: Estimate, device: Device, allocator: str) -> report.Verdict:
    """Whether it fits the GPU; where the process may reserve a share of it only, whether it fits that."""
    fraction = AllocatorSettings.parse(allocator).memory_fraction
    if fraction < 1:
        share = int(fraction * device.total_nbytes)
        return _verdict(peak, share, f"{fraction:.0%} of {device.title}", measure="reserved")
    return _verdict(peak, device.total_nbytes, device.title)


def _verdict(
    peak: Estimate, limit: int, name: str, level: Any = "error", measure: Literal["reserved", "device"] = "device"
) -> report.Verdict:
    low, _, high = getattr(peak, measure)
    outcome: Any = "fits" if high <= limit else "does not fit" if low > limit else "uncertain"
    return report.Verdict(outcome=outcome, limit=limit, limit_name=name, level=level, measure=measure)


def _groups(buffers: Iterable[Buffer], key: Callable[[Buffer], Any]) -> list[tuple[Any, list[Buffer]]]:
    groups: defaultdict[Any, list[Buffer]] = defaultdict(list)
    for b in buffers:
        groups[key(b)].append(b)
    return sorted(groups.items(), key=lambda item: -_sum(item[1]))[:NUM_LISTED]


def _sum(buffers: Iterable[Buffer]) -> int:
    return sum(b.nbytes for b in buffers)


def _categories(buffers: Iterable[Buffer]) -> dict[Any, int]:
    return {category.value: _sum(group) for category, group in _groups(buffers, lambda b: b.category)}


def _largest(buffers: Iterable[Buffer], reason: Callable[[Buffer], str]) -> str:
    """The reason that most of the bytes have."""
    reasons = _groups(buffers, reason)
    return str(reasons[0][0]) if reasons else ""


def _pattern(modules: set[str]) -> str:
    """One path for all of `modules`, with `*` where they differ in a number; empty if they differ otherwise."""
    split = [m.split(".") for m in modules]
    if len({len(parts) for parts in split}) != 1:
        return ""
    merged = []
    for parts in zip(*split, strict=True):
        if len(set(parts)) == 1:
            merged.append(parts[0])
        elif all(p.isdigit() for p in parts):
            merged.append("*")
        else:
            return ""
    return ".".join(merged)


def _source_line(frame: Frame | None) -> str:
    if frame is None:
        return ""
    return linecache.getline(frame.path, frame.line).strip()

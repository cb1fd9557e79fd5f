"""One analysed Workload as the Report says it."""

import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from memlint.base.grouping import grouped
from memlint.base.units import format_count, outcome
from memlint.capture.capture import ScriptFacts
from memlint.commands.analyse.analysis import Analysis
from memlint.config import Budget
from memlint.memory.allocator.reference import AllocatorSettings
from memlint.memory.communicators import SYMMETRIC, communicators, symmetric
from memlint.memory.context import loads_everything, with_context
from memlint.memory.decoding import kept_tokens
from memlint.memory.devices import Device
from memlint.memory.estimate import Cause, stream_peaks
from memlint.memory.fitting import fitting_gpus
from memlint.memory.liveness import dead_at, least_peak
from memlint.memory.records import Buffer, Category, Phase, Trace
from memlint.memory.timeline import live
from memlint.memory.traffic import traffic
from memlint.report import model as report
from memlint.report.from_trace import buffer_fields, course_of, moment_of, place_of, plan_of, what_ifs_of
from memlint.targets.workload import Workload

NUM_LISTED = 200
"""Buffers, modules and lines listed in a Report; the rest is counted."""
_OF_INFERENCE = (Phase.EVALUATION, Phase.PREFILL, Phase.DECODE)
_AFTER_TRAINING = (Phase.EVALUATION, Phase.SAVING)
_NOT_BY_LINE = tuple(map(Category, report.NOT_BY_LINE))


def identity(workload: Workload, budget: Budget | None) -> dict[str, Any]:
    """The fields that say which Workload it is and what it may take."""
    names = ("name", "target", "mode", "batch", "dtype", "gpu", "torch", "context", "allocator", "origin", "built_by")
    return {
        **{name: getattr(workload, name) for name in names},
        "optimizer": workload.optimizer if workload.mode == "train" else None,
        "allowed": report.Budget.model_validate(budget.model_dump()) if budget else None,
    }


def described(analysis: Analysis, budget: Budget | None) -> report.Workload:
    """The Workload with its Estimate, its assumptions and whether it fits."""
    capture = analysis.capture
    fields = {**identity(analysis.workload, budget), "optimizer": capture.optimizer}
    known = report.Workload(
        **fields,
        guessed=capture.guessed,
        assumptions=[
            report.Assumption(text=each.text, found=each.found, **place_of(each.frame)) for each in analysis.assumptions
        ],
        estimate=_estimate(analysis),
        ranks=_ranks(analysis),
        verdict=_gpu_verdict(analysis),
        budget=_budget_verdict(analysis, budget),
        what_ifs=what_ifs_of(analysis.simulation.answers, analysis.trace),
    )
    return known if capture.script is None else known.model_copy(update=_of_script(capture.script, analysis))


def _of_script(facts: ScriptFacts, analysis: Analysis) -> dict[str, object]:
    """The fields that a Workload has because it is a script."""
    fields: dict[str, object] = {"script": _script(facts, analysis), "error": _failure(facts.error)}
    is_whole = facts.stop is not None or (facts.happened == "computed" and facts.error is None)
    has_step = bool(analysis.trace.num_steps)
    if not (is_whole or facts.happened in ("trained", "evaluated", "generated")):
        fields |= {"verdict": None, "budget": None}
        if not has_step:
            fields |= dict.fromkeys(("mode", "batch", "dtype", "optimizer"))
    is_only_built = facts.happened == "built" and facts.stop is None and not has_step
    if is_only_built or not analysis.trace.events:
        fields |= {"estimate": None, "verdict": None, "budget": None}
    return fields


def _failure(texts: tuple[str, str, tuple[str, ...]] | None) -> report.Error | None:
    if texts is None:
        return None
    message, hint, traceback = texts
    return report.Error(kind="workload", message=message, hint=hint, traceback=list(traceback))


def _script(facts: ScriptFacts, analysis: Analysis) -> report.Script:
    """Return the Report's record of the run itself."""
    nodes = analysis.trace.nodes
    seen = {node.phase for node in nodes}
    by_step: dict[int, int] = {}
    for index, nbytes in zip(analysis.timeline.event_nodes, live(analysis.timeline), strict=True):
        step = nodes[index].step if index >= 0 else -1
        by_step[step] = max(by_step.get(step, 0), nbytes)
    return report.Script(
        command=facts.command,
        steps=facts.num_steps,
        happened=facts.happened,
        step_peaks=[by_step[step] for step in sorted(by_step) if step >= 0],
        step_seconds=[round(seconds, 3) for seconds in facts.seconds],
        ending=facts.ending,
        stop=_failure(facts.stop),
        lacks=facts.lacks,
        own=list(facts.own),
        not_reached=[phase for phase in _AFTER_TRAINING if facts.goes_on and phase not in seen],
        frees_later=facts.frees_later,
        evaluations=facts.evaluations,
        remembered=facts.remembered,
        writes=[report.Write(file=each.path, nbytes=each.nbytes, **place_of(each.frame)) for each in facts.writes],
        connections=[report.Connection(host=each.host, **place_of(each.frame)) for each in facts.connections],
        programs=[
            report.Program(command=each.command, is_offline=each.is_offline, **place_of(each.frame))
            for each in facts.programs
        ],
        not_guarded=list(facts.not_guarded),
    )


def plan(analysis: Analysis, *, dynamics: bool) -> report.Plan | None:
    """Plan the changes that bring the peak below the budget, or into the GPU; None if there is neither."""
    limit = _budget_verdict(analysis, None) or _gpu_verdict(analysis)
    if limit is None:
        return None
    from memlint.whatif.plan import Planner  # noqa: PLC0415 -- most looks plan nothing

    planner = Planner(
        analysis.workload, analysis.simulation, analysis.holders_after, limit.limit, limit.measure, dynamics
    )
    return plan_of(planner.plan(), limit.limit_name, analysis.trace)


def _budget_verdict(analysis: Analysis, budget: Budget | None) -> report.Verdict | None:
    if not analysis.budget:
        return None
    return _verdict(analysis, analysis.budget, "budget", level=budget.level if budget else "error")


def _gpu_verdict(analysis: Analysis) -> report.Verdict | None:
    """Judge whether it fits the GPU, or the share of it that the process may reserve."""
    device = analysis.device
    if not device.is_cuda:
        return None
    fraction = AllocatorSettings.parse(analysis.workload.allocator).memory_fraction
    if fraction < 1:
        share = int(fraction * device.total_nbytes)
        return _verdict(analysis, share, f"{fraction:.0%} of {device.title}", measure="reserved")
    return _verdict(analysis, device.total_nbytes, device.title)


def _verdict(
    analysis: Analysis, limit: int, name: str, *, measure: Any = "device", level: Any = "error"
) -> report.Verdict:
    low, _, high = getattr(analysis.estimate, measure)
    return report.Verdict(outcome=outcome(low, high, limit), limit=limit, limit_name=name, level=level, measure=measure)


def _estimate(analysis: Analysis) -> report.Estimate:
    peak = analysis.estimate
    dead = {buffer.id for buffer in dead_at(analysis.trace, peak.peak_event)} if peak.peak_event >= 0 else set()
    types = dict(analysis.trace.modules)

    def why(b: Buffer) -> str:
        if b.id in dead:
            return "held by a Python reference"
        if b.category is Category.ACTIVATION:
            return "saved for backward"
        return "in use" if b.category is Category.TEMPORARY else ""

    return report.Estimate(
        **moment_of(peak),
        doubtful=[report.Doubtful(**each._asdict(), why=_WHY[each.cause](analysis.device)) for each in peak.doubtful],
        phase_peaks=dict(peak.phase_peaks),
        model_peaks=_model_peaks(analysis),
        least=least_peak(analysis.trace),
        categories=dict(peak.categories),
        at_peak=[
            report.AliveBuffer(**buffer_fields(b), nbytes=b.nbytes, why=why(b)) for b in peak.at_peak[:NUM_LISTED]
        ],
        num_at_peak=len(peak.at_peak),
        course=course_of(analysis.timeline, analysis.trace.nodes),
        streams=_streams(analysis),
        generation=_generation(analysis),
        by_module=[
            report.ModuleBytes(module=module, type=types.get(module, ""), **_totals(group))
            for module, group in _groups(peak.at_peak, _owner)
        ],
        by_line=[
            report.LineBytes(
                **place_of(frame),
                **_totals(group),
                dtype=group[0].dtype,
                shape=group[0].shape,
                module=_pattern({b.module for b in group}),
                why=_groups(group, why)[0][0],
                source=linecache.getline(frame.path, frame.line).strip() if frame else "",
            )
            for frame, group in _groups([b for b in peak.at_peak if b.category not in _NOT_BY_LINE], lambda b: b.frame)
        ],
    )


def _model_peaks(analysis: Analysis) -> dict[str, int]:
    """Return the peak of each model that a script calls without training; empty for one model."""
    if analysis.capture.script is None or analysis.trace.num_steps:
        return {}
    nodes, highest = analysis.trace.nodes, dict[str, int]()
    for index, nbytes in zip(analysis.timeline.event_nodes, live(analysis.timeline), strict=True):
        if index >= 0 and nodes[index].phase in _OF_INFERENCE and (path := nodes[index].module):
            model = path.partition(".")[0]
            highest[model] = max(highest.get(model, 0), nbytes)
    return highest if len(highest) > 1 else {}


def _generation(analysis: Analysis) -> report.Generation | None:
    """Describe the caches of the last generation; None where nothing was generated."""
    kept, sizes = kept_tokens(analysis.trace), analysis.workload.dimensions
    if kept is None:
        return None
    at_peak = analysis.estimate.categories.get(Category.KV_CACHE, 0)
    return report.Generation(
        prompt=sizes.get("prompt"),
        new_tokens=sizes.get("new_tokens", len(kept.after_rounds)),
        cache_nbytes=kept.nbytes,
        cache_per_token=kept.per_token,
        copies_nbytes=max(0, at_peak - kept.nbytes),
    )


def _why_of_context(device: Device) -> str:
    if device.context_is_measured:
        return "as given, but for the modules that each program needs"
    modules = " with all modules" if loads_everything(device) else ""
    return f"seen on {device.title}{modules}; --context SIZE if you know it"


_WHY: dict[Cause, Callable[[Device], str]] = {
    "context": _why_of_context,
    "cache": lambda _device: "what PyTorch keeps cached depends on all that ran before the step",
    "workspaces": lambda _device: "cuDNN and others choose an algorithm when it runs",
}


def _streams(analysis: Analysis) -> list[report.StreamPeak]:
    """The peak of each CUDA stream; empty where all is on the default stream."""
    if not analysis.timeline.streams.own:
        return []
    peaks = stream_peaks(analysis.timeline, analysis.device, AllocatorSettings.parse(analysis.workload.allocator))
    kinds: dict[int, dict[str, None]] = {}
    for each in analysis.trace.collectives:
        if each.backend != SYMMETRIC:
            kinds.setdefault(each.stream, {})[each.kind] = None
    return [
        report.StreamPeak(
            stream=stream,
            collectives=list(kinds.get(stream, ())),
            requested=requested,
            allocated=allocated,
            reserved=reserved,
        )
        for stream, (requested, allocated, reserved) in peaks.items()
    ]


def _ranks(analysis: Analysis) -> report.Ranks | None:
    """Describe the rank and its exchange with others; None for a program that joins no process group."""
    trace = analysis.trace
    if trace.world is None:
        return None
    kinds = {each.kind for each in trace.collectives}
    others = "every other rank is taken to be like this one; of uneven shards the first rank has the largest"
    if kinds & {"send", "recv"}:
        others = "ranks before and after it in a pipeline hold other layers"
    return report.Ranks(
        rank=trace.world.rank,
        world_size=trace.world.size,
        strategy=analysis.workload.strategy,
        traffic=[
            report.Traffic(kind=kind, ranks=size, within_node=within, calls=calls, nbytes=nbytes, sent=sent)
            for kind, size, within, calls, nbytes, sent in traffic(trace)
        ],
        outside=list(_outside(analysis.capture.own_device, trace)),
        others=others if trace.world.size > 1 else "",
    )


def fitting_of(analysis: Analysis, prices: Mapping[str, float]) -> list[report.FittingGpu] | None:
    """GPUs that the step would fit into; None on the host, and where nothing was taken."""
    if not analysis.device.is_cuda or not analysis.timeline.events:
        return None
    most, alone = analysis.simulation.most_device, analysis.capture.own_device
    return [
        report.FittingGpu(name=gpu.name, title=gpu.title, total_nbytes=gpu.total_nbytes, price=price)
        for gpu, price in fitting_gpus(most, analysis.device, alone, prices)
    ]


def _outside(device: Device, trace: Trace) -> Iterator[report.Outside]:
    if not device.is_cuda:
        return
    alone = with_context(device)
    low, likely, high = alone.context_low, alone.context_nbytes, alone.context_high
    yield report.Outside(name="CUDA context", nbytes=report.Interval(low=low, estimate=likely, high=high))
    for each in communicators(device, trace.collectives):
        of_first = "; shares with the first" if each.is_shared else ""
        name = f"NCCL among {format_count(each.size, 'rank')} ({', '.join(each.kinds)}{of_first})"
        yield report.Outside(name=name, nbytes=report.Interval.model_validate(each.nbytes._asdict()))
    if nbytes := symmetric(trace.collectives):
        yield report.Outside(name="symmetric memory", nbytes=report.Interval(low=nbytes, estimate=nbytes, high=nbytes))


def _owner(b: Buffer) -> str:
    """The module a Buffer belongs to: of a named tensor that of its parameter, else where it was made."""
    if b.category in _NOT_BY_LINE and b.name:
        return b.name.rpartition(" of ")[2].rpartition(".")[0]
    return b.module


def _groups(buffers: Iterable[Buffer], key: Callable[[Buffer], Any]) -> list[tuple[Any, list[Buffer]]]:
    """The Buffers by `key`, the group with the most bytes first."""
    groups = grouped((key(b), b) for b in buffers)
    return sorted(groups.items(), key=lambda item: -_sum(item[1]))[:NUM_LISTED]


def _sum(buffers: Iterable[Buffer]) -> int:
    return sum(b.nbytes for b in buffers)


def _totals(group: list[Buffer]) -> dict[str, Any]:
    categories = {category: _sum(part) for category, part in _groups(group, lambda b: b.category)}
    return {"nbytes": _sum(group), "num_buffers": len(group), "categories": categories}


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

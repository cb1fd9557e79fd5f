"""From a Trace, its Timeline and simulated Changes to the records of the Report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from memlint.memory.estimate import Estimate
from memlint.memory.flops import node_flops
from memlint.memory.liveness import Origin
from memlint.memory.records import Buffer, Frame, Geometry, Node, Phase, Trace, data_flow
from memlint.memory.timeline import Timeline, live, peak_event
from memlint.report import model as report
from memlint.report.from_rules import library_of
from memlint.whatif.change import Names
from memlint.whatif.simulation import WhatIf

if TYPE_CHECKING:
    from memlint.whatif.plan import ChangePlan

NUM_STRETCHES = 72
"""The number of stretches of a Course: as many as fit on a line of a terminal."""


def moment_of(estimate: Estimate) -> dict[str, Any]:
    """The fields of a PeakMoment."""
    peaks = {name: getattr(estimate, name)._asdict() for name in report.Peak.model_fields}
    when = {"phase": estimate.phase, "op": estimate.op, "module": estimate.module}
    return {"peak": report.Peak.model_validate(peaks), **when, **place_of(estimate.frame)}


def place_of(frame: Frame | None) -> dict[str, Any]:
    """The fields `path`, `line` and `library` of a record."""
    if frame is None:
        return {"path": None, "line": None}
    line = frame.of_project
    return {"path": line.path, "line": line.line, "library": library_of(frame)}


def buffer_fields(buffer: Buffer) -> dict[str, Any]:
    """The fields of a record that say what a Buffer is."""
    alike = {name: getattr(buffer, name) for name in ("op", "dtype", "shape", "module", "name")}
    return {**alike, "category": buffer.category, **place_of(buffer.frame)}


def course_of(timeline: Timeline, nodes: Sequence[Node]) -> report.Course | None:
    """The most live bytes in each of NUM_STRETCHES stretches, with the phase and step that they are of.

    There are fewer stretches where there are fewer events.
    """
    nbytes = live(timeline)
    number = min(NUM_STRETCHES, len(nbytes))
    if not number:
        return None
    edges = [len(nbytes) * stretch // number for stretch in range(number + 1)]
    highest = [max(range(first, end), key=nbytes.__getitem__) for first, end in pairwise(edges)]
    parts = [_phase_and_step(timeline.event_nodes[event], nodes) for event in highest]
    return report.Course(
        nbytes=[nbytes[event] for event in highest],
        phases=[phase for phase, _step in parts],
        steps=[step for _phase, step in parts],
    )


def timeline_of(timeline: Timeline, nodes: Sequence[Node]) -> report.Timeline:
    """The whole Timeline, with the Buffers that appear in its events numbered anew in the order in which they open."""
    numbers: dict[int, int] = {}
    for event in timeline.events:
        if event >= 0:
            numbers[event] = len(numbers)
    opened = [timeline.buffers[buffer] for buffer in numbers]
    sites: dict[report.Site, int] = {}
    buffer_sites = [sites.setdefault(_site(buffer), len(sites)) for buffer in opened]
    parts = [_phase_and_step(node, nodes) for node in timeline.event_nodes]
    own, after_index = timeline.streams.own, timeline.streams.first_after_index
    return report.Timeline(
        sites=list(sites),
        buffer_sites=buffer_sites,
        nbytes=[buffer.nbytes for buffer in opened],
        streams=[own.get(number, 0) for number in numbers] if own else [],
        first_after_index=None if after_index is None else numbers.get(after_index),
        emptied=list(timeline.streams.emptied),
        events=[numbers[event] if event >= 0 else ~numbers[~event] for event in timeline.events],
        stretches=[
            report.Stretch(first=position, phase=part[0], step=part[1])
            for position, part in enumerate(parts)
            if not position or part != parts[position - 1]
        ],
        peak=peak_event(timeline),
    )


def graph_of(trace: Trace) -> report.Graph:
    """Describe the last step of a Trace.

    Left out are Buffers of the host, and those that live through the step unused.
    """
    first = trace.step_nodes[-1] if trace.step_nodes else len(trace.nodes)
    of_gpu = {event for event in trace.events if event >= 0}
    flows = [flow for flow in data_flow(trace) if flow.target >= first and flow.buffer in of_gpu]
    opened_or_used = {flow.buffer for flow in flows} | {b for b in of_gpu if trace.buffers[b].node >= first}
    buffers = [trace.buffers[number] for number in sorted(opened_or_used)]
    numbers = {buffer.id: number for number, buffer in enumerate(buffers)}
    opened = dict.fromkeys(range(first, len(trace.nodes)), 0)
    for buffer in buffers:
        if buffer.node >= first:
            opened[buffer.node] += buffer.nbytes

    def nbytes(geometries: Iterable[Geometry]) -> int:
        return sum(trace.buffers[number].nbytes for number in {each.buffer for each in geometries} & of_gpu)

    def in_step(node: int) -> int:
        return node - first if node >= first else -1

    sites: dict[report.Site, int] = {}
    return report.Graph(
        step=trace.num_steps - 1,
        kernels=[
            report.Kernel(
                op=node.op,
                phase=node.phase,
                **place_of(node.frame),
                function=_function(node.frame),
                module=node.module,
                flops=node_flops(node),
                read=nbytes(node.inputs),
                written=nbytes(node.outputs),
                opened=opened[node.index],
            )
            for node in trace.nodes[first:]
        ],
        buffer_sites=[sites.setdefault(_site(buffer), len(sites)) for buffer in buffers],
        sites=list(sites),
        nbytes=[buffer.nbytes for buffer in buffers],
        born=[in_step(buffer.node) for buffer in buffers],
        last_used=[in_step(buffer.last_used) for buffer in buffers],
        died=[-1 if buffer.died is None else in_step(trace.event_nodes[buffer.died]) for buffer in buffers],
        flow_sources=[in_step(flow.source) for flow in flows],
        flow_targets=[flow.target - first for flow in flows],
        flow_buffers=[numbers[flow.buffer] for flow in flows],
    )


def what_ifs_of(answers: Sequence[WhatIf], trace: Trace) -> list[report.Change]:
    """Changes that were simulated by themselves, by kind, the lowest peak of each first; `trace` is without them."""
    changes = [_change(answer, trace, {}) for answer in answers if len(answer.changes) == 1]
    return sorted(changes, key=lambda change: (change.kind, change.peak.requested.estimate, change.text))


def plan_of(plan: ChangePlan, limit_name: str, trace: Trace) -> report.Plan:
    """The Report's record of a plan; `trace` is of the program as it is."""
    return report.Plan(
        limit=plan.limit,
        limit_name=limit_name,
        measure=plan.measure,
        met=plan.met,
        changes=[_change(after, trace, plan.variables) for after in plan.steps],
        num_traces=plan.num_traces,
    )


def _change(after: WhatIf, trace: Trace, variables: Mapping[Origin, str]) -> report.Change:
    """The last of the changes, with what comes of all."""
    change, estimate, names = after.changes[-1], after.estimate, Names(trace.modules, variables)
    return report.Change(
        kind=type(change).__name__,
        text=change.describe(names),
        snippet=change.snippet(names),
        effect=change.effect_in(trace).value,
        **moment_of(estimate),
        peak_change=after.peak_change,
        recompute_flops=after.recompute_flops,
        recompute_share=round(after.recompute_share, 4),
    )


def _site(buffer: Buffer) -> report.Site:
    return report.Site(**buffer_fields(buffer), function=_function(buffer.frame))


def _function(frame: Frame | None) -> str:
    return frame.of_project.function if frame else ""


def _phase_and_step(node: int, nodes: Sequence[Node]) -> tuple[Phase, int]:
    return (nodes[node].phase, nodes[node].step) if node >= 0 else (Phase.OTHER, -1)

"""What a Report says of the course of a step: every Buffer's lifetime, or a few numbers."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from memlint.memory.timeline import live, peak_event
from memlint.report.model import Course, Site, Stretch
from memlint.report.model import Timeline as Lifetimes
from memlint.tracing.records import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlint.memory.timeline import Timeline
    from memlint.tracing.records import Buffer, Node

NUM_STRETCHES = 72
"""Of a Course: what fits on a line of a terminal."""


def course(timeline: Timeline, nodes: Sequence[Node]) -> Course | None:
    """The most live bytes in each of NUM_STRETCHES stretches, or of fewer where there are fewer events."""
    nbytes = live(timeline)
    number = min(NUM_STRETCHES, len(nbytes))
    if not number:
        return None
    edges = [len(nbytes) * stretch // number for stretch in range(number + 1)]
    began = [_phase_and_step(timeline.event_nodes[first], nodes) for first in edges[:-1]]
    return Course(
        nbytes=[max(nbytes[first:end]) for first, end in pairwise(edges)],
        phases=[phase.value for phase, _step in began],
        steps=[step for _phase, step in began],
    )


def lifetimes(timeline: Timeline, nodes: Sequence[Node]) -> Lifetimes:
    """The whole Timeline, with the Buffers that appear in its events numbered anew in the order in which they open."""
    numbers: dict[int, int] = {}
    events = []
    for event in timeline.events:
        if event >= 0:
            numbers[event] = len(numbers)
            events.append(numbers[event])
        else:
            events.append(~numbers[~event])
    sites: dict[Site, int] = {}
    opened = [timeline.buffers[buffer] for buffer in numbers]
    return Lifetimes(
        buffer_sites=[sites.setdefault(_site(buffer), len(sites)) for buffer in opened],
        nbytes=[buffer.nbytes for buffer in opened],
        sites=list(sites),
        events=events,
        stretches=_stretches(timeline, nodes),
        peak=peak_event(timeline),
    )


def _site(buffer: Buffer) -> Site:
    frame = buffer.frame
    return Site(
        category=buffer.category.value,
        op=buffer.op,
        dtype=buffer.dtype,
        shape=buffer.shape,
        path=frame.path if frame else None,
        line=frame.line if frame else None,
        function=frame.function if frame else "",
        module=buffer.module,
        name=buffer.name,
    )


def _stretches(timeline: Timeline, nodes: Sequence[Node]) -> list[Stretch]:
    found: list[Stretch] = []
    for position, node in enumerate(timeline.event_nodes):
        phase, step = _phase_and_step(node, nodes)
        if not found or (found[-1].phase, found[-1].step) != (phase, step):
            found.append(Stretch(first=position, phase=phase.value, step=step))
    return found


def _phase_and_step(node: int, nodes: Sequence[Node]) -> tuple[Phase, int]:
    return (nodes[node].phase, nodes[node].step) if node >= 0 else (Phase.OTHER, -1)

"""A Recording with what was told of it as a Capture: rules, renderers and the page take it as any other."""

from bisect import bisect_left
from dataclasses import replace
from typing import Final

from memlint.capture.capture import Capture
from memlint.capture.lifetimes import BEFORE
from memlint.capture.recording import capture_of
from memlint.explain.recordings.evidence import Evidence
from memlint.memory.records import Node, Phase

MOST_TRACED: Final = 400_000
"""Allocations of a Recording beyond which no Capture is made: a page of more would not open."""


def traced(evidence: Evidence, target: str, gpu: str) -> Capture:
    """Make a Capture whose kernels are the recorded allocations, each with its phase and step.

    What a kernel read and wrote is not recorded: it has no inputs and no outputs. `gpu` names the device.
    """
    recording, alive, steps, told = evidence.recording, evidence.alive, evidence.steps, evidence.kinds
    capture = capture_of(recording, target, gpu)
    trace = capture.trace
    nodes: list[Node] = []
    node_of: dict[int, int] = {}
    step_nodes: list[int] = []
    step, ends = 0, steps.ends
    for number in range(alive.num_before, len(alive)):
        while step < len(ends) and alive.born[number] > ends[step]:
            step += 1
        if step == len(step_nodes):
            step_nodes.append(len(nodes))
        buffer = trace.buffers[number]
        node_of[number] = len(nodes)
        nodes.append(Node(len(nodes), buffer.op, told.phase(number), step, buffer.frame, "", (), (), buffer.born))
    buffers = tuple(
        buffer._replace(
            category=told.category(number),
            phase=told.phase(number) if alive.born[number] != BEFORE else Phase.OTHER,
            node=node_of.get(number, -1),
            last_used=node_of.get(number, -1),
            step=nodes[node_of[number]].step if number in node_of else -1,
        )
        for number, buffer in enumerate(trace.buffers)
    )
    event_nodes = []
    last = -1
    for event in trace.events:
        last = node_of.get(event, last)
        event_nodes.append(last)
    return replace(
        capture,
        trace=replace(
            trace,
            nodes=tuple(nodes),
            buffers=buffers,
            event_nodes=tuple(event_nodes),
            num_steps=len(ends),
            step_nodes=tuple(step_nodes[: len(ends)]),
        ),
    )


def failures_in(evidence: Evidence) -> list[int]:
    """Return the positions of the failures in the events of the Capture: each is the last event before one."""
    alive = evidence.alive
    changes = sorted([*alive.born[alive.num_before :], *(each for each in alive.died if each < alive.num_events)])
    return [max(alive.num_before + bisect_left(changes, each) - 1, 0) for each in evidence.course.failures]

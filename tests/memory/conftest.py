"""Traces written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from memlint.memory.records import Buffer, Category, Frame, Geometry, Node, Phase, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def trace_of(kernels: Sequence[dict[str, Any]]) -> Trace:
    """A Trace of kernels, each of which opens Buffers, uses others, and is followed by the closing of some.

    Keys, all optional: `opens` (sizes in bytes), `uses` and `closes` (Buffer ids, counted as they open), `phase`,
    `step`, `module`, `line`, `caller` (of the line), `category` and `setup` (the Buffers were there before any kernel).
    """
    nodes: list[Node] = []
    buffers: list[Buffer] = []
    events: list[int] = []
    event_nodes: list[int] = []
    for kernel in kernels:
        setup = kernel.get("setup", False)
        phase, step = kernel.get("phase", Phase.FORWARD), -1 if setup else kernel.get("step", 0)
        frame = Frame("model.py", kernel["line"], "forward", kernel.get("caller")) if "line" in kernel else None
        module, category = kernel.get("module", ""), kernel.get("category", Category.TEMPORARY)
        index, start = len(nodes), len(events)
        if setup:
            index = -1
        outputs = []
        for nbytes in kernel.get("opens", ()):
            made = len(buffers)
            buffers.append(
                Buffer(made, nbytes, (nbytes,), "uint8", category, "aten.op.default", phase, step, frame, module, "",
                       index, index, len(events), None, None)
            )  # fmt: skip
            outputs.append(Geometry(made, (nbytes,), (1,), "uint8"))
            events.append(made)
            event_nodes.append(index)
        for used in kernel.get("uses", ()):
            buffers[used] = buffers[used]._replace(last_used=index)
        if not setup:
            inputs = tuple(Geometry(used, (1,), (1,), "uint8") for used in kernel.get("uses", ()))
            nodes.append(Node(index, "aten.op.default", phase, step, frame, module, inputs, tuple(outputs), start))
        for closed in kernel.get("closes", ()):
            buffers[closed] = buffers[closed]._replace(died=len(events))
            events.append(~closed)
            event_nodes.append(index)
    steps = sorted({node.step for node in nodes})
    return Trace(
        nodes=tuple(nodes),
        buffers=tuple(buffers),
        events=tuple(events),
        event_nodes=tuple(event_nodes),
        num_steps=len(steps),
        step_nodes=tuple(next(node.index for node in nodes if node.step == step) for step in steps),
        assumptions=(),
        modules=(("", "Model"),),
        torch="2.13.0",
        device="a100-80gb",
    )


def random_trace(program: Sequence[tuple[Sequence[int], int, int]]) -> Trace:
    """A Trace from numbers: for each kernel the sizes it opens, and two numbers that pick a live Buffer to use and,
    if odd, one to close."""
    kernels: list[dict[str, Any]] = []
    live: list[int] = []
    opened = 0
    phases = list(Phase)
    for sizes, use, close in program:
        new = list(range(opened, opened + len(sizes)))
        opened += len(sizes)
        kernel: dict[str, Any] = {"opens": sizes, "phase": phases[use % len(phases)], "uses": []}
        if live:
            kernel["uses"] = [live[use % len(live)]]
        live += new
        if live and close % 2:
            kernel["closes"] = [live.pop(close % len(live))]
        kernels.append(kernel)
    return trace_of(kernels)


@pytest.fixture(scope="session")
def make_trace() -> Callable[[Sequence[dict[str, Any]]], Trace]:
    return trace_of


@pytest.fixture(scope="session")
def make_random_trace() -> Callable[[Sequence[tuple[Sequence[int], int, int]]], Trace]:
    return random_trace

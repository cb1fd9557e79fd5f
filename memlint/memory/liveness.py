"""Which Buffers are still needed: the data flow of a Trace, and what eager Python keeps beyond the last use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from memlint.tracing.records import Category

if TYPE_CHECKING:
    import networkx as nx

    from memlint.tracing.records import Buffer, Frame, Phase, Trace

Origin: TypeAlias = "tuple[str, Frame | None, str, tuple[int, ...], str, Phase]"
"""What the same storage has in common in every step, and in other traces of the program."""

Vertex: TypeAlias = tuple[Literal["node", "buffer"], int]

# What a program keeps on purpose, from one step to the next.
_KEPT_FOR_GOOD = frozenset({Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE, Category.WORKSPACE})


class Held(NamedTuple):
    """A Buffer that stayed alive although nothing was going to use it."""

    buffer: Buffer
    last_used_node: int
    died_event: int | None
    """None if it outlives the trace."""


def data_flow(trace: Trace) -> nx.DiGraph[Vertex]:
    """Draw the directed acyclic graph of a Trace: from the Node that made a Buffer to it, and on to every later user.

    Vertices are `("node", index)` and `("buffer", id)`. A Node that writes a Buffer in place uses it.
    """
    import networkx as nx  # noqa: PLC0415 -- a fifth of a second that few analyses need

    graph: nx.DiGraph[Vertex] = nx.DiGraph()
    graph.add_nodes_from(("node", node.index) for node in trace.nodes)
    graph.add_nodes_from(("buffer", buffer.id) for buffer in trace.buffers)
    graph.add_edges_from((("node", b.node), ("buffer", b.id)) for b in trace.buffers if b.node >= 0)
    graph.add_edges_from(
        (("buffer", geometry.buffer), ("node", node.index))
        for node in trace.nodes
        for geometry in (*node.inputs, *node.outputs)
        if geometry.buffer >= 0 and trace.buffers[geometry.buffer].node < node.index
    )
    return graph


def last_uses(trace: Trace) -> list[int]:
    """For each Buffer the last Node that reads or writes it; the Node that made it if none does."""
    last = [buffer.node for buffer in trace.buffers]
    for node in trace.nodes:
        for geometry in (*node.inputs, *node.outputs):
            if geometry.buffer >= 0:
                last[geometry.buffer] = node.index
    return last


def origin(buffer: Buffer) -> Origin:
    """Kernel, line, module, shape, dtype and phase that made a Buffer."""
    return buffer.op, buffer.frame, buffer.module, buffer.shape, buffer.dtype, buffer.phase


def held(trace: Trace) -> tuple[Held, ...]:
    """Buffers alive while a Node ran that came after their last use, in order of birth.

    Left out is what a training loop keeps on purpose: parameters, buffers, optimizer state, workspaces, and whatever
    outlives the trace after serving in a step later than the one it was made in.
    """
    last = last_uses(trace)
    found = []
    for event in trace.events:
        if event < 0:
            continue
        buffer, last_used = trace.buffers[event], last[event]
        if buffer.category in _KEPT_FOR_GOOD or _serves_every_step(trace, buffer, last_used):
            continue
        last_alive = len(trace.nodes) - 1 if buffer.died is None else trace.event_nodes[buffer.died]
        if last_alive > last_used:
            found.append(Held(buffer, last_used, buffer.died))
    return tuple(found)


def dead_at(trace: Trace, event: int) -> tuple[Held, ...]:
    """Of the held Buffers, those alive after `event` and not used by the Node running there nor by any later one."""
    node = trace.event_nodes[event]
    return tuple(
        each
        for each in held(trace)
        if each.buffer.born <= event
        and (each.died_event is None or each.died_event > event)
        and each.last_used_node < node
    )


def _serves_every_step(trace: Trace, buffer: Buffer, last_used: int) -> bool:
    if buffer.died is not None:
        return False
    return buffer.step < 0 or (last_used >= 0 and trace.nodes[last_used].step > buffer.step)

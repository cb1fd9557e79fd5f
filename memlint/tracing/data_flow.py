"""Which kernel hands which Buffer on to which other: the edges of every graph of a Trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from memlint.tracing.records import Trace


class Flow(NamedTuple):
    """A Buffer on its way from the Node that wrote it last to a Node that reads it or writes it in place."""

    source: int
    """Index of the Node, always below `target`; -1 if no Node wrote it before."""
    target: int
    buffer: int
    """Its id."""


def data_flow(trace: Trace) -> Iterator[Flow]:
    """Yield the edges of a Trace by target, each once: together with `trace.nodes` a directed acyclic multigraph."""
    writers: dict[int, int] = {}
    for node in trace.nodes:
        for buffer in dict.fromkeys(geometry.buffer for geometry in (*node.inputs, *node.outputs)):
            if buffer >= 0 and trace.buffers[buffer].node < node.index:  # else it is born inside this kernel
                yield Flow(writers.get(buffer, -1), node.index, buffer)
        writers.update((geometry.buffer, node.index) for geometry in node.outputs)

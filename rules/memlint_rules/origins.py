"""Where a Buffer on the device comes from: the line that made what was moved there."""

from __future__ import annotations

from memlint.tracing.records import Buffer, Frame
from memlint_rules.flow import Flow


def made_at(flow: Flow, buffer: Buffer) -> Frame | None:
    """The line that made the host tensor of which `buffer` is a copy, or else `buffer` itself."""
    node = flow.trace.nodes[buffer.node] if buffer.node >= 0 else None
    while node is not None and node.op == "aten._to_copy.default" and node.inputs and node.inputs[0].buffer >= 0:
        source = flow.writer(node.inputs[0].buffer, node.index)
        if source is None or source.step != node.step:
            break
        node = source
    return node.frame if node is not None else None

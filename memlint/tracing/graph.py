"""The trace as a `torch.fx.Graph`: one `call_function` node per kernel, edges by the storages they read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlint.tracing.records import Trace


def build_graph(trace: Trace, ops: Sequence[Any]) -> fx.Graph:
    """A graph whose node i is `trace.nodes[i]`; its operands are the nodes that wrote what it reads last, each once.

    Views are folded into their readers, which carry the viewed shapes in `meta["memlint"].inputs`. Tensors that no
    kernel made, such as Python numbers, appear as placeholders.
    """
    graph = fx.Graph()
    writer: dict[int, fx.Node] = {}
    host = graph.placeholder("host")
    for node, op in zip(trace.nodes, ops, strict=True):
        operands = tuple(dict.fromkeys(writer.get(g.buffer, host) for g in node.inputs))
        made = graph.create_node(
            "call_function", op, operands, {}, name=f"{op._schema.name.split('::')[-1]}_{node.index}"
        )
        made.meta["memlint"] = node
        for g in node.outputs:
            if g.buffer >= 0:
                writer[g.buffer] = made
    graph.output(None)
    return graph

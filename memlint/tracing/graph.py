"""A Trace as a `torch.fx.Graph`: one `call_function` node per kernel, edges as in `data_flow`."""

import linecache
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from torch import fx

from memlint.base.grouping import grouped
from memlint.memory.records import Frame, Trace, data_flow

HOST = "host"
"""Placeholder of tensors without a Buffer: small ones of the host, such as Python numbers."""


def build_graph(trace: Trace, ops: Sequence[Any], first: int = 0) -> fx.Graph:
    """Make the graph of `trace.nodes[first:]`, whose overloads are in `ops`.

    The arguments of a node are the nodes that last wrote the Buffers it uses, each once; a placeholder stands for each
    Buffer that no node of the graph wrote before, and one for the host. Views are folded into their readers. The output
    are the last nodes to write each Buffer that outlives the trace.

    `meta["memlint"]` of a node is its Node, with the viewed shapes; `meta["memlint_buffers"]` are the Buffers that it
    opens, temporary ones included; for a placeholder the Buffer that it stands for.
    """
    graph = fx.Graph()
    flows = [flow for flow in data_flow(trace) if flow.target >= first]
    makers: dict[int, fx.Node] = {}
    """Graph nodes by index of a Node; placeholders by `~id` of the Buffer."""
    operands: defaultdict[int, dict[int, None]] = defaultdict(dict)
    for flow in flows:
        source = flow.source if flow.source >= first else ~flow.buffer
        operands[flow.target][source] = None
        if source < 0 and source not in makers:
            buffer = trace.buffers[flow.buffer]
            name = re.sub(r"\W+", "_", f"{buffer.category}_{buffer.name}_{buffer.id}", flags=re.ASCII)
            makers[source] = graph.placeholder(name)
            makers[source].meta["memlint_buffers"] = (buffer,)
    nodes = trace.nodes[first:]
    from_host = {node.index for node in nodes if any(geometry.buffer < 0 for geometry in node.inputs)}
    host = graph.placeholder(HOST) if from_host else None
    opened = grouped((buffer.node, buffer) for buffer in trace.buffers)
    for node, op in zip(nodes, ops[first:], strict=True):
        arguments = [makers[source] for source in operands[node.index]]
        if host is not None and node.index in from_host:
            arguments.append(host)
        name = f"{op._schema.name.split('::')[-1]}_{node.index}"
        graph_node = makers[node.index] = graph.create_node("call_function", op, tuple(arguments), {}, name=name)
        graph_node.meta["memlint"] = node
        graph_node.meta["memlint_buffers"] = tuple(opened[node.index])
        if node.frame is not None:
            graph_node.meta["stack_trace"] = "\n".join(map(_quoted, filter(None, (node.frame.caller, node.frame))))
    graph.output(tuple(makers[index] for index in _last_writers(trace) if index >= first))
    return graph


def _quoted(frame: Frame) -> str:
    code = linecache.getline(frame.path, frame.line).strip()
    return f'File "{frame.path}", line {frame.line}, in {frame.function}\n    {code}'


def _last_writers(trace: Trace) -> list[int]:
    """Return the Nodes that last wrote the Buffers that outlive the trace, in order."""
    writers = {geometry.buffer: node.index for node in trace.nodes for geometry in node.outputs}
    return sorted({node for buffer, node in writers.items() if buffer >= 0 and trace.buffers[buffer].died is None})

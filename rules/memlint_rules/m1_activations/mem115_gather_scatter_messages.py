from math import prod
from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import Category, Geometry, Node, Phase, Trace
from memlint.memory.timeline import resize
from memlint_rules.support.flow import MIN_NBYTES, Flow, grouped, made, most_alive, numel, peak_change

MIN_FACTOR = 2
"""Minimum number of edges per vertex; with fewer, messages are no larger than the vertices."""

_GATHERS = frozenset({"aten.index.Tensor", "aten.index_select.default"})
_SCATTERS = frozenset(
    f"aten.{op}.default"
    for op in ("index_add", "index_add_", "scatter_add", "scatter_add_", "index_put", "index_put_", "_index_put_impl_")
)

_MODEL = """\
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x, {arguments}):
        x = self.linear(x)
        {aggregate}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x, source, target, weight):
        {prepare}for layer in self.layers:
            x = layer(x, {arguments})
        return x


def memlint_workload():
    source, target = torch.zeros(2, 65_536, dtype=torch.int64)
    return Model(), {{"x": torch.randn(4096, 64), "source": source, "target": target, "weight": torch.ones(65_536)}}
"""


class GatherScatterMessages(TraceRule):
    """A sum over neighbours writes one message per edge; a sparse product would not.

    Looks for rows gathered by index, at least two for each existing row, that are at most multiplied by one number per
    edge and then summed by another index.

    ## Why it costs memory

    The messages have a row for every edge, and a graph has many edges for each vertex. Gathering, weighting and their
    gradients each allocate such a tensor. The same sum is the product of a sparse matrix with the vertices, which only
    needs rows for vertices.

    ## How the saving is computed

    Tensors with a row for every edge are removed in forward and backward, and replaced by a sparse CSR matrix and, in
    backward, its transpose. The peak is computed again.

    ## Known limits

    Messages that depend on both ends of an edge, or on trained weights, are not reported. If the sparse matrix is built
    from indices in every step, building it takes memory for a moment.

    - https://pytorch-geometric.readthedocs.io/en/latest/advanced/sparse_tensor.html
    - https://docs.pytorch.org/docs/stable/generated/torch.sparse.mm.html
    """

    code, name, severity = "MEM115", "gather-scatter-messages", Severity.WARNING
    bad = (
        Case(
            source=_MODEL.format(
                arguments="source, target, weight",
                aggregate="messages = x[source] * weight[:, None]\n        "
                "return torch.zeros_like(x).index_add_(0, target, messages).relu()",
                prepare="",
            ),
            line=12,
        ),
    )
    good = (
        Case(
            source=_MODEL.format(
                arguments="adjacency",
                aggregate="return torch.sparse.mm(adjacency, x).relu()",
                prepare="indices = torch.stack([target, source])\n        "
                "adjacency = torch.sparse_coo_tensor(indices, weight, (4096, 4096)).to_sparse_csr()\n        ",
            )
        ),
        Case(
            title="Messages that are more than a weighted row",
            source=_MODEL.format(
                arguments="source, target, weight",
                aggregate="messages = (x[source] - x[target]).relu()\n        "
                "return torch.zeros_like(x).index_add_(0, target, messages)",
                prepare="",
            ),
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        flow, timeline = Flow.of(trace), context.timeline
        gathers = (node for node in flow.forward(*_GATHERS) if node.step >= 0 and _multiplies_rows(node))
        lines = grouped((node.frame, messages) for node in gathers if (messages := _messages(flow, node)))
        for frame, group in lines.items():
            sizes = _sizes(trace, group)
            nbytes = most_alive(timeline, sizes)
            if nbytes < MIN_NBYTES:
                continue
            edges, width = group[0].gather.outputs[0].shape
            vertices = group[0].gather.inputs[0].shape[0]
            yield self.finding(
                context,
                frame,
                f"One message of {width:,} numbers is written for each of {edges:,} edges between {vertices:,} "
                f"vertices; tensors of that size take {format_nbytes(nbytes)} at one time.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, resize(timeline, sizes)),
                fix="Multiply the vertices by a sparse matrix of the weights, `torch.sparse.mm(adjacency, x)` with the "
                "adjacency in CSR; PyTorch Geometric does with `adj_t` in place of `edge_index`.",
            )


class _Messages(NamedTuple):
    """The kernels from the gather to the last one before the scatter, and the scatter."""

    gather: Node
    chain: tuple[Node, ...]
    scatter: Node


def _multiplies_rows(node: Node) -> bool:
    """Return True if rows of a matrix are gathered by a list of indices, more of them than there are rows."""
    if len(node.inputs) != 2 or len(node.inputs[0].shape) != 2 or len(node.inputs[1].shape) != 1:
        return False
    rows, width = node.inputs[0].shape
    return (
        rows > 1
        and node.outputs[0].shape == (*node.inputs[1].shape, width)
        and (node.outputs[0].shape[0] >= MIN_FACTOR * rows)
    )


def _messages(flow: Flow, gather: Node) -> _Messages | None:
    chain, size = [gather], numel(gather.outputs[0])
    while flow.trace.buffers[chain[-1].outputs[0].buffer].category is not Category.ACTIVATION:
        message = chain[-1].outputs[0].buffer
        reader = flow.only_reader(chain[-1])
        if reader is None:
            return None
        if reader.op in _SCATTERS:
            return _Messages(gather, tuple(chain), reader) if message not in made(reader) else None
        others = [g for g in reader.inputs if g.buffer != message]
        weighs = reader.op == "aten.mul.Tensor" and all(_is_per_edge(g, gather) for g in others)
        if not (weighs or reader.op == "aten._to_copy.default") or numel(reader.outputs[0]) != size:
            return None
        chain.append(reader)
    return None


def _is_per_edge(geometry: Geometry, gather: Node) -> bool:
    edges = gather.outputs[0].shape[0]
    return numel(geometry) in (1, edges) and geometry.shape[:1] in ((), (1,), (edges,))


def _sizes(trace: Trace, group: list[_Messages]) -> dict[int, int]:
    """Return the bytes of the tensors with a row for every edge, if sparse products computed the sums."""
    places = {
        (node.step, node.module, node.frame): numel(messages.gather.outputs[0])
        for messages in group
        for node in (*messages.chain, messages.scatter)
    }
    sizes = {buffer: 0 for messages in group for node in messages.chain for buffer in made(node)}
    gradients: dict[tuple[int, str], int] = {}
    for buffer in trace.buffers:
        place = (buffer.step, buffer.module, buffer.frame)
        if buffer.phase is Phase.BACKWARD and prod(buffer.shape) == places.get(place):
            sizes[buffer.id] = 0
            gradients.setdefault((buffer.step, buffer.module), buffer.id)
    firsts: dict[int, _Messages] = {}
    for messages in group:
        firsts.setdefault(messages.gather.step, messages)
        if (gradient := gradients.get((messages.gather.step, messages.gather.module))) is not None:
            sizes[gradient] = _csr_nbytes(messages)
    for messages in firsts.values():
        sizes[messages.chain[-1].outputs[0].buffer] = _csr_nbytes(messages)
    return sizes


def _csr_nbytes(messages: _Messages) -> int:
    """Return the bytes of a sparse matrix with one int64 index and one value per edge, and one int64 per row."""
    buffer = messages.gather.outputs[0]
    itemsize = {"float64": 8, "float32": 4}.get(buffer.dtype, 2)
    return (8 + itemsize) * buffer.shape[0] + 8 * (messages.gather.inputs[0].shape[0] + 1)

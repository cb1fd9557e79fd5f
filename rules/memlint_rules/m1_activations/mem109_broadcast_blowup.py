from itertools import combinations
from math import prod
from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import Node, Phase, Trace
from memlint.memory.timeline import without
from memlint_rules.support.flow import MIN_NBYTES, POINTWISE, Flow, grouped, made, most_alive, numel, peak_change

MIN_FACTOR = 8
"""Minimum ratio of the result's size to both operands, and to the reduced result."""
_MAX_BETWEEN = 4
"""Maximum number of elementwise kernels between the broadcast and the reduction."""

_BROADCASTS = frozenset(f"aten.{op}.Tensor" for op in ("add", "sub", "mul", "div", "maximum", "minimum"))
_BETWEEN = POINTWISE | frozenset(
    f"aten.{op}" for op in ("pow.Tensor_Scalar", "abs.default", "square.default", "exp.default", "neg.default")
)
_REDUCTIONS = frozenset(
    f"aten.{op}"
    for op in (
        "sum.dim_IntList", "mean.dim", "amax.default", "amin.default", "linalg_vector_norm.default",
        "norm.ScalarOpt_dim", "logsumexp.default", "max.dim", "min.dim",
    )
)  # fmt: skip


class BroadcastBlowup(TraceRule):
    """Two tensors are broadcast to a much larger one that is reduced right away.

    Looks for arithmetic whose result is at least eight times larger than both operands, because each has size 1 in
    dimensions where the other does not, and is reduced after a few elementwise kernels over a dimension that they
    share.

    ## Why it costs memory

    Between N and M points of D dimensions there are N x M distances, but `a[:, None] - b` first computes N x M x D
    numbers, and autograd keeps them and their successors for backward. A matrix product, or a dedicated kernel, creates
    nothing of that size.

    ## How the saving is computed

    All storages of that size are removed in forward and backward, and the peak is computed again.

    ## Known limits

    Memory that the replacement needs beside its result is not counted, and some reductions have no replacement; those
    can be computed in chunks. Distances by matrix product lose precision between points that are close together.

    - https://docs.pytorch.org/docs/stable/generated/torch.cdist.html
    - https://docs.pytorch.org/docs/stable/generated/torch.func.vmap.html
    """

    code, name, severity = "MEM109", "broadcast-blowup", Severity.WARNING
    example = Case.of_layers(
        {"encoder": "nn.Linear(64, 128)", "codes": "nn.Parameter(torch.randn(256, 128))"},
        """\
points = self.encoder(x)
distances = ((points[:, None] - self.codes) ** 2).sum(-1)
return distances.amin(-1).mean()""",
        {"x": "torch.randn(2048, 64)"},
        name="Quantiser",
        line=13,
    )
    bad = (
        example,
        example.but(
            {"= ((points[:, None] - self.codes) ** 2).sum(-1)": "= (points[:, None] * self.codes).sum(-1)"},
            title="A matrix product by hand",
            line=13,
        ),
    )
    good = (
        example.but({"= ((points[:, None] - self.codes) ** 2).sum(-1)": "= torch.cdist(points, self.codes) ** 2"}),
        example.but(
            {"distances = ((points[:, None] - self.codes) ** 2).sum(-1)": "distances = points @ self.codes.T"},
            title="A matrix product",
        ),
        example.but(
            {"((points[:, None] - self.codes) ** 2).sum(-1)": "(points[:, None, 0] - self.codes[:, 0]).abs()"},
            title="Every element does meet every other",
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        flow, timeline = Flow.of(trace), context.timeline
        candidates = (node for node in flow.forward(*_BROADCASTS) if node.step >= 0 and _blows_up(node))
        lines = grouped((node.frame, blowup) for node in candidates if (blowup := _reduced(flow, node)))
        for frame, group in lines.items():
            large = _large(trace, group)
            nbytes = most_alive(timeline, large)
            if nbytes < MIN_NBYTES:
                continue
            first = group[-1].nodes[0]
            shapes = " and ".join(str(list(g.shape)) for g in first.inputs)
            yield self.finding(
                context,
                frame,
                f"{shapes} are broadcast to {list(first.outputs[0].shape)}, which is reduced to "
                f"{list(group[-1].reduction.outputs[0].shape)}; tensors of that size take {format_nbytes(nbytes)} at "
                "one time.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, without(timeline, large)),
                fix=_remedy(group[-1]),
            )


class _Blowup(NamedTuple):
    """The kernels with such large results, and the reduction that ends them."""

    nodes: tuple[Node, ...]
    reduction: Node


def _blows_up(node: Node) -> bool:
    operands = [
        prod(size for size, stride in zip(g.shape, g.stride, strict=False) if stride) for g in node.inputs
    ]  # elements in memory, where expanded dimensions have one
    return len(operands) == 2 and min(operands) > 1 and numel(node.outputs[0]) >= MIN_FACTOR * max(operands)


def _reduced(flow: Flow, node: Node) -> _Blowup | None:
    nodes, size = [node], numel(node.outputs[0])
    while len(nodes) <= _MAX_BETWEEN + 1:
        reader = flow.only_reader(nodes[-1])
        if reader is None:
            return None
        if reader.op in _REDUCTIONS:
            small = numel(reader.outputs[0]) * MIN_FACTOR <= size
            return _Blowup(tuple(nodes), reader) if small and _contracts(node, reader) else None
        if reader.op not in _BETWEEN or numel(reader.outputs[0]) != size:
            return None
        nodes.append(reader)
    return None


def _contracts(node: Node, reduction: Node) -> bool:
    """Return True if the reduction goes over dimensions that both operands of `node` have."""
    before, after = node.outputs[0].shape, reduction.outputs[0].shape
    if len(before) == len(after):
        gone = [i for i, (n, m) in enumerate(zip(before, after, strict=True)) if n != m]
    else:
        ways = combinations(reversed(range(len(before))), len(before) - len(after))
        gone = next((list(way) for way in ways if tuple(n for i, n in enumerate(before) if i not in way) == after), [])
    padded = [(1,) * (len(before) - len(g.shape)) + g.shape for g in node.inputs]
    return bool(gone) and all(shape[i] == before[i] for shape in padded for i in gone)


def _large(trace: Trace, group: list[_Blowup]) -> set[int]:
    """Return storages of that size, including those of backward on the same lines, and workspaces of their readers."""
    sizes = {
        (node.step, node.module, node.frame): numel(blowup.nodes[0].outputs[0])
        for blowup in group
        for node in (*blowup.nodes, blowup.reduction)
    }
    large = {buffer for blowup in group for node in blowup.nodes for buffer in made(node)}
    readers: dict[int, set[int]] = {}
    for node in trace.nodes:
        size = sizes.get((node.step, node.module, node.frame))
        if size is not None and any(numel(geometry) == size for geometry in node.inputs):
            readers[node.index] = made(node)
    for buffer in trace.buffers:
        size = sizes.get((buffer.step, buffer.module, buffer.frame))
        is_gradient = buffer.phase is Phase.BACKWARD and prod(buffer.shape) == size
        if is_gradient or (buffer.node in readers and buffer.id not in readers[buffer.node]):
            large.add(buffer.id)
    return large


def _remedy(blowup: _Blowup) -> str:
    ops = [node.op for node in blowup.nodes]
    if ops[0] == "aten.mul.Tensor" and blowup.reduction.op == "aten.sum.dim_IntList":
        return "Write it as a matrix product, with `@` or `torch.einsum`."
    if ops[0] == "aten.sub.Tensor" and len(ops) > 1:
        return (
            "Use `torch.cdist(a, b)`, or for squared distances "
            "`a.square().sum(-1)[:, None] + b.square().sum(-1) - 2 * a @ b.T`."
        )
    return "Compute it in chunks, for example with `torch.func.vmap(..., chunk_size=...)`, or as a matrix product."

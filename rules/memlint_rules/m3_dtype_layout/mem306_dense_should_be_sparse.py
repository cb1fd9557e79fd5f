from collections.abc import Iterator
from math import prod

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import Buffer, Category, Node, Trace
from memlint.memory.timeline import live, resize

_PRODUCTS = ("aten.mm.", "aten.addmm.", "aten.bmm.", "aten.baddbmm.", "aten.mv.")
_INDEX_NBYTES = 8
"""COO indices are int64, one per dimension and element: https://docs.pytorch.org/docs/stable/sparse.html"""
MIN_NUMEL = 2**20
MAX_DENSITY = 0.1
"""Maximum density: above it, sparse kernels are far slower than dense ones."""


class DenseShouldBeSparse(TraceRule):
    """A matrix that is almost all zeros is stored densely.

    Looks for operands of matrix products with a million elements or more of which the program can have filled only a
    few: created by `zeros` and then written at a known number of indices. It reports those whose density is at most a
    tenth, and at most half of the density at which the sparse format takes as many bytes.

    ## Why it costs memory

    A dense tensor stores every element, zero or not. In COO format a nonzero element takes its own bytes plus eight per
    dimension for its indices, and zeros take nothing. A float32 matrix breaks even at 20 % density, a bfloat16 one at
    11 %.

    ## How the saving is computed

    The storage, and equally sparse intermediate results of the same shape, get the size of a COO tensor, elements x
    (itemsize + 8 x dimensions), in every step, and the peak is computed again.

    ## Known limits

    The number of elements is an upper bound from shapes; matrices that are only sparse in their values are not
    recognised. Parameters are left out, and so are tensors of zeros only, such as an example input. Not every operation
    has a sparse kernel, and some have no backward.

    - https://docs.pytorch.org/docs/stable/sparse.html
    """

    code, name, severity = "MEM306", "dense-should-be-sparse", Severity.WARNING
    example = """\
import torch
from torch import nn


class GraphConvolution(nn.Module):
    def __init__(self, edges):
        super().__init__()
        adjacency = torch.zeros(4096, 4096)
        adjacency[edges[0], edges[1]] = 1.0
        self.register_buffer("adjacency", adjacency)
        self.linear = nn.Linear(16, 16)

    def forward(self, features):
        return self.adjacency @ self.linear(features)


def memlint_workload():
    model = GraphConvolution(torch.zeros(2, 10_000, dtype=torch.int64))
    return model, {"features": torch.randn(4096, 16)}
"""
    bad = (
        Case(example, title="Made once and kept"),
        Case("""\
import torch
from torch import nn


class GraphConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, features, edges):
        adjacency = torch.zeros(4096, 4096, device=features.device)
        adjacency[edges[0], edges[1]] = 1.0
        return adjacency @ self.linear(features)


def memlint_workload():
    edges = torch.zeros(2, 10_000, dtype=torch.int64)
    return GraphConvolution(), {"features": torch.randn(4096, 16), "edges": edges}
""").but(title="Made in every forward"),
    )
    good = (
        bad[1].but(
            {
                "adjacency = torch.zeros(4096, 4096, device": "ones = torch.ones(edges.shape[1], device",
                "adjacency[edges[0], edges[1]] = 1.0": (
                    "adjacency = torch.sparse_coo_tensor(edges, ones, (4096, 4096))"
                ),
                "adjacency @ self.linear(features)": "torch.sparse.mm(adjacency, self.linear(features))",
            }
        ),
        Case("""\
import torch
from torch import nn


def memlint_workload():
    return nn.Linear(4096, 16), {"input": torch.zeros(1024, 4096)}
""").but(title="Zeros that stand for an input"),
    )

    def check(self, context: Context) -> Findings:
        trace, timeline = context.trace, context.timeline
        if not timeline.events:
            return
        origins: dict[tuple[object, ...], tuple[Buffer, Node]] = {}
        for buffer, product in _operands(trace):
            origins.setdefault(_origin(buffer), (buffer, product))
        peak = max(live(timeline))
        for buffer, product in origins.values():
            # Intermediate results, such as the matrix before it was normalised, are as sparse.
            sizes = {each.id: _coo_nbytes(each) for each in trace.buffers if _is_like(each, buffer)}
            numel, nonzeros = prod(buffer.shape), buffer.nonzeros or 0
            subject = f"`{buffer.name}`, a" if buffer.name else "This"
            comma = "," if buffer.name else ""
            yield self.finding(
                context,
                product.frame if buffer.name else buffer.frame,
                f"{subject} {' x '.join(map(str, buffer.shape))} {buffer.dtype} matrix{comma} takes "
                f"{format_nbytes(buffer.nbytes)} and at most {nonzeros:,} of its elements ({nonzeros / numel:.2%}) are "
                f"not zero; as a sparse tensor it takes {format_nbytes(_coo_nbytes(buffer))}.",
                nbytes=buffer.nbytes - _coo_nbytes(buffer),
                peak_change=max(live(resize(timeline, sizes))) - peak,
                fix="Build it with `torch.sparse_coo_tensor(indices, values, size)`, multiply with `torch.sparse.mm`.",
            )


def _operands(trace: Trace) -> Iterator[tuple[Buffer, Node]]:
    """Yield Buffers that a matrix product reads whole and that are sparse enough, and that product."""
    for node in trace.nodes:
        if not node.op.startswith(_PRODUCTS):
            continue
        for geometry in node.inputs[-2:]:
            buffer = trace.buffers[geometry.buffer] if geometry.buffer >= 0 else None
            if (
                buffer is not None
                and buffer.nonzeros  # without any it stands for later data: an example input, a first state
                and buffer.category is not Category.PARAMETER
                and prod(buffer.shape) >= MIN_NUMEL
                and prod(geometry.shape) == prod(buffer.shape)
                and buffer.nonzeros <= MAX_DENSITY * prod(buffer.shape)
                and 2 * _coo_nbytes(buffer) <= buffer.nbytes
            ):
                yield buffer, node


def _is_like(each: Buffer, matrix: Buffer) -> bool:
    return each.shape == matrix.shape and each.nonzeros is not None and 2 * _coo_nbytes(each) <= each.nbytes


def _coo_nbytes(buffer: Buffer) -> int:
    itemsize = buffer.nbytes // max(1, prod(buffer.shape))
    return (buffer.nonzeros or 0) * (itemsize + _INDEX_NBYTES * len(buffer.shape))


def _origin(buffer: Buffer) -> tuple[object, ...]:
    """Return a key for the same matrix in every step."""
    return buffer.op, buffer.frame, buffer.shape, buffer.dtype

from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import FORWARDS, Geometry, Node
from memlint.memory.timeline import without
from memlint_rules.support.flow import PRODUCTS, Flow, grouped, most_alive, numel, peak_change

MIN_NUMEL = 2**20

_SUMS = frozenset({"aten.sum.default", "aten.sum.dim_IntList"})


class OneHotMatmul(TraceRule):
    """One-hot vectors are multiplied by a matrix to look up its rows.

    Follows one-hot tensors of a million elements or more, made by `torch.nn.functional.one_hot` or by scattering into
    zeros, through casts to a matrix product that sums over the classes, or to a multiplication followed by a sum over
    the classes.

    ## Why it costs memory

    `one_hot` takes eight bytes per index and class, and its cast to float32 four more, which are kept for backward:
    2048 indices of 32,000 classes are 500 MiB and another 250 MiB. An index itself takes eight bytes. The product reads
    a matrix of zeros to copy a few rows.

    ## How the saving is computed

    The one-hot tensors and their casts are removed, and so is the product over all classes if a sum follows; the peak
    is computed again.

    ## Known limits

    One-hot tensors with other readers, such as a mean, or mixed with others first, as in label smoothing and mixup, are
    not reported.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.one_hot.html
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html
    """

    code, name, severity = "MEM307", "one-hot-matmul", Severity.WARNING
    example = Case.of_layers(
        {"table": "nn.Parameter(torch.randn(4096, 64))", "head": "nn.Linear(64, 4096)"},
        "logits = self.head(F.one_hot(x, 4096).float() @ self.table)\nreturn logits.mean()",
        {"x": "torch.zeros(8, 256, dtype=torch.int64)"},
        imports="from torch.nn import functional as F\n",
        line=13,
    )
    lookup = example.but({"F.one_hot(x, 4096).float() @ self.table": "F.embedding(x, self.table)"})
    bad = (
        example,
        lookup.but(
            {"logits.mean()": "-(F.one_hot(x, 4096).float() * logits.log_softmax(-1)).sum(-1).mean()"},
            title="To pick the probability of the target",
            line=14,
        ),
    )
    good = (
        lookup,
        lookup.but(
            {"logits.mean()": "F.cross_entropy(logits.flatten(0, 1), x.flatten())"}, title="The target as an index"
        ),
        example.but(
            {
                "logits = self.head(F.one_hot(x, 4096).float() @ self.table)": (
                    "vectors = F.one_hot(x, 4096).float()\n"
                    "        logits = self.head(vectors @ self.table + vectors.mean())"
                )
            },
            title="The mean of the vectors is needed as well",
        ),
        lookup.but(
            {"logits.mean()": "(F.one_hot(x, 4096).float() * logits.softmax(-1)).sum((0, 1)).mean()"},
            title="The classes stay",
        ),
    )

    def check(self, context: Context) -> Findings:
        scatters = [node for node in context.trace.nodes if node.op == "aten.scatter_.value" and node.step >= 0]
        if not scatters:
            return
        flow, timeline = Flow.of(context.trace), context.timeline
        one_hot = (node for node in scatters if _is_one_hot(flow, node))
        lines = grouped((use.node.frame, use) for node in one_hot for use in _uses(flow, node))
        for frame, uses in lines.items():
            removed = {buffer for use in uses for buffer in use.buffers}
            nbytes = most_alive(timeline, removed)
            made = uses[0].one_hot
            remedy = (
                "Look rows up by index: `torch.nn.functional.embedding(indices, matrix)` or `matrix[indices]`."
                if uses[0].node.op in PRODUCTS
                else "Use the index: `gather(dim, indices)`, or `cross_entropy` with class indices."
            )
            yield self.finding(
                context,
                frame,
                f"One-hot vectors of {made.shape[-1]:,} classes for {numel(made) // made.shape[-1]:,} indices take "
                f"{format_nbytes(nbytes)}, with their casts, to select rows that an index would find.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, without(timeline, removed)),
                fix=remedy,
            )


class _Use(NamedTuple):
    """A kernel that sums products of one-hot vectors over the classes, and Buffers that an index makes unnecessary."""

    node: Node
    one_hot: Geometry
    buffers: tuple[int, ...]


def _is_one_hot(flow: Flow, scatter: Node) -> bool:
    """Return True if one element in each row of zeros is set."""
    made, index = scatter.outputs[0], scatter.inputs[-1]
    zeroed = flow.writer(made.buffer, scatter.index)
    return (
        numel(made) >= MIN_NUMEL
        and index.shape == (*made.shape[:-1], 1)
        and zeroed is not None
        and zeroed.op.startswith("aten.zero")
    )


def _uses(flow: Flow, scatter: Node) -> list[_Use]:
    """Return all uses of the one-hot vectors in forward; none if one of them needs the vectors themselves."""
    vectors = scatter.outputs[0]
    uses: list[_Use] = []
    stack: list[tuple[Geometry, int, tuple[int, ...]]] = [(vectors, scatter.index, (vectors.buffer,))]
    while stack:
        source, index, buffers = stack.pop()
        for reader in flow.readers(source.buffer, index):
            if reader.phase not in FORWARDS:
                continue
            if reader.op == "aten._to_copy.default":
                cast = reader.outputs[0]
                stack.append((cast, reader.index, (*buffers, cast.buffer)))
            elif reader.op in PRODUCTS and _contracts_classes(reader, source.buffer, vectors.shape[-1]):
                uses.append(_Use(reader, vectors, buffers))
            elif reader.op == "aten.mul.Tensor" and _is_summed(flow, reader, source.buffer, vectors.shape[-1]):
                uses.append(_Use(reader, vectors, (*buffers, reader.outputs[0].buffer)))
            else:
                return []
    return uses


def _contracts_classes(product: Node, buffer: int, num_classes: int) -> bool:
    left = product.inputs[-2]
    return left.buffer == buffer and left.shape[-1] == num_classes and left.stride[-1] == 1


def _is_summed(flow: Flow, product: Node, buffer: int, num_classes: int) -> bool:
    """Return True if every reader of the product sums over its classes."""
    made = product.outputs[0]
    vectors = next(g for g in product.inputs if g.buffer == buffer)
    if made.shape != vectors.shape:
        return False
    classes = [
        d for d, (n, s) in enumerate(zip(vectors.shape, vectors.stride, strict=True)) if (n, s) == (num_classes, 1)
    ]
    readers = [node for node in flow.readers(made.buffer, product.index) if node.phase in FORWARDS]
    return bool(readers) and all(
        node.op in _SUMS and any(_is_reduced(node.outputs[0].shape, vectors.shape, dimension) for dimension in classes)
        for node in readers
    )


def _is_reduced(shape: tuple[int, ...], summed: tuple[int, ...], dimension: int) -> bool:
    before, after = summed[:dimension], summed[dimension + 1 :]
    return shape in ((), (*before, *after), (*before, 1, *after))

from collections import defaultdict
from math import prod

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import Buffer, Category, Node, Phase, Trace
from memlint.memory.timeline import resize
from memlint_rules.support.flow import most_alive, numel, peak_change
from memlint_rules.support.parameters import gradients_read_by_loop, temporaries_of

MIN_NBYTES = 64 * 2**20
"""Smaller gradients are not worth another optimizer."""
MIN_SHARE = 0.05
"""Minimum share of the gradient in the peak; for the embedding of a large language model it does not pay."""
MAX_TOUCHED = 0.1
"""Maximum share of touched rows: above it the sparse gradient saves little and is slow."""

_LOOKUPS = frozenset({"aten.index_select.default", "aten.embedding.default", "aten._embedding_bag.default"})
_DENSE_BACKWARDS = frozenset({"aten.embedding_dense_backward.default", "aten._embedding_bag_dense_backward.default"})
_INDEX_NBYTES = 8


class DenseEmbeddingGrad(TraceRule):
    """The gradient of a large embedding is dense although a step touches few of its rows.

    Looks for dense gradients of embedding tables, of 64 MiB and a twentieth of the peak or more, if a step looks up at
    most a tenth of the rows. Tables with other readers, such as a tied output layer, are not reported, because their
    gradient is dense anyway, nor are those whose gradient the loop reads, for example for clipping.

    ## Why it costs memory

    The backward of a lookup fills a tensor of the table's size with zeros and adds the rows that were looked up. Ten
    million rows of 64 float32 numbers make 2.4 GiB in every step, for a few thousand nonzero rows. With `sparse=True`
    the gradient holds only these rows and their indices; the temporaries of the optimizer shrink accordingly.

    ## How the saving is computed

    The gradient, and the temporaries of the optimizer with the table's shape, are reduced to the rows that are looked
    up in a step, with eight bytes each for the index, and the peak is computed again.

    ## Known limits

    Among PyTorch's optimizers only SGD, SparseAdam and Adagrad support sparse gradients. The state of SparseAdam is
    dense: two more tables. It has no weight decay, and dense parameters need a separate optimizer. Gradient scaling by
    frequency and some backends of DistributedDataParallel need dense gradients.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html
    - https://docs.pytorch.org/docs/stable/generated/torch.optim.SparseAdam.html
    """

    code, name, severity = "MEM308", "dense-embedding-grad", Severity.WARNING
    text = """\
import torch
from torch import nn

from memlint.targets.declare import Declaration


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(1_000_000, 64)
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.items(x))


def memlint_workload():
    return Declaration(
        Model(),
        {"x": torch.zeros(64, 32, dtype=torch.int64)},
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
"""
    example = Case(text, line=14)
    bad = (
        example,
        example.but(
            {"parameters: torch.optim.SGD(parameters, lr=0.1),": "parameters: torch.optim.AdamW(parameters),"},
            title="With the state of Adam",
            line=14,
        ),
    )
    good = (
        example.but({"= nn.Embedding(1_000_000, 64)": "= nn.Embedding(1_000_000, 64, sparse=True)"}),
        example.but({"= nn.Embedding(1_000_000, 64)": "= nn.Embedding(30_000, 64)"}, title="A small table"),
        Case.of_model(
            """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(300_000, 64)
        self.head = nn.Linear(64, 300_000, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.words(x))
""",
            'Model(), {"x": torch.zeros(4, 8, dtype=torch.int64)}',
            title="The output layer is tied to it",
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        threshold = max(MIN_NBYTES, MIN_SHARE * context.estimate.requested.estimate)
        tables = {
            buffer.id: buffer
            for buffer in trace.buffers
            if buffer.category is Category.PARAMETER and buffer.nbytes >= threshold
        }
        if not tables:
            return
        lookups: defaultdict[int, list[Node]] = defaultdict(list)
        for node in trace.nodes:
            if node.phase is Phase.FORWARD:
                for buffer in {g.buffer for g in node.inputs} & tables.keys():
                    if node.op in _LOOKUPS:
                        lookups[buffer].append(node)
                    else:
                        tables.pop(buffer)
        clipped = gradients_read_by_loop(trace)
        for buffer, nodes in lookups.items():
            if buffer in tables and tables[buffer].name not in clipped:
                yield from self._of_table(trace, context, tables[buffer], nodes)

    def _of_table(self, trace: Trace, context: Context, table: Buffer, lookups: list[Node]) -> Findings:
        timeline = context.timeline
        rows = table.shape[0]
        touched = max(
            sum(max(numel(g) for g in node.inputs if "int" in g.dtype) for node in lookups if node.step == step)
            for step in range(trace.num_steps)
        )
        gradients = [buffer for buffer in trace.buffers if _is_dense_gradient(buffer, table, lookups)]
        if not gradients or touched > MAX_TOUCHED * rows:
            return
        temporaries = temporaries_of(trace, table)
        row = table.nbytes // rows
        sizes = {buffer.id: touched * (row + _INDEX_NBYTES) for buffer in (*gradients, *temporaries)}
        nbytes = most_alive(timeline, [buffer.id for buffer in gradients])
        has_state = any(
            b.category is Category.OPTIMIZER_STATE and b.name.endswith(f" of {table.name}") for b in trace.buffers
        )
        yield self.finding(
            context,
            lookups[-1].frame,
            f"The gradient of `{table.name}` takes {format_nbytes(nbytes)} for {rows:,} rows, of which a step looks up "
            f"at most {touched:,}; as a sparse gradient it takes {format_nbytes(touched * (row + _INDEX_NBYTES))}.",
            nbytes=nbytes,
            peak_change=peak_change(timeline, resize(timeline, sizes)),
            fix="Construct the embedding with `sparse=True` and update it with `torch.optim.SparseAdam`"
            + (", whose state stays dense, or `SGD`." if has_state else " or `SGD`."),
        )


def _is_dense_gradient(buffer: Buffer, table: Buffer, lookups: list[Node]) -> bool:
    """Return True if it is, or is added to, this table's gradient; sums are matched by the module of their backward."""
    if prod(buffer.shape) != prod(table.shape) or buffer.phase is not Phase.BACKWARD:
        return False
    if buffer.name:
        return buffer.category is Category.GRADIENT and buffer.name == table.name
    return buffer.op in _DENSE_BACKWARDS and any(buffer.module == node.module for node in lookups)

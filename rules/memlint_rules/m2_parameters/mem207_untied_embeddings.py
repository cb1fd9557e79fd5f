from collections.abc import Iterator
from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import FORWARDS, Buffer, Category, Node, Trace
from memlint.memory.timeline import end_at, live, without
from memlint_rules.support.flow import PRODUCTS, most_alive
from memlint_rules.support.parameters import belonging, temporaries_of

MIN_ROWS = 1024
MIN_SHARE = 0.05
"""Minimum share of the bytes of all parameters."""

_LOOKUPS = frozenset({"aten.index_select.default", "aten.embedding.default"})
_EMBEDDING_BACKWARD = "aten.embedding_dense_backward.default"


class UntiedEmbeddings(TraceRule):
    """The embedding and the output layer of one vocabulary have separate weights.

    Looks for a parameter that is looked up by index and another of the same shape that is the weight of an output
    layer, is trained and makes up a twentieth of the parameters or more.

    ## Why it costs memory

    A table of 32,000 words and 4096 features takes 500 MiB in float32, and in training four times that, with its
    gradient and the state of Adam, and more while the optimizer computes its step. Many language models use one table
    for both ends.

    ## How the saving is computed

    The weight of the output layer, its state, and its temporaries in the optimizer are removed. Its gradient is freed
    once it has been added to that of the embedding. The peak is computed again.

    ## Known limits

    Tying makes a different model: weights that were trained separately cannot be tied. The advice is for models that
    are trained from scratch, and for ties that were intended but lost, such as one made by copying values.

    - https://arxiv.org/abs/1608.05859
    - https://huggingface.co/docs/transformers/main_classes/configuration
    """

    code, name, severity = "MEM207", "untied-embeddings", Severity.INFO
    bad = (
        Case.of_layers(
            {
                "words": "nn.Embedding(32_000, 512)",
                "layer": "nn.Linear(512, 512)",
                "head": "nn.Linear(512, 32_000, bias=False)",
            },
            "return self.head(self.layer(self.words(x))[:, -1])",
            {"x": "torch.zeros(8, 64, dtype=torch.int64)"},
            line=13,
        ),
    )
    good = (
        bad[0].but(
            {
                "self.head = nn.Linear(512, 32_000, bias=False)": """self.head = nn.Linear(512, 32_000, bias=False)
        self.head.weight = self.words.weight"""
            }
        ),
        bad[0].but(
            {
                "self.head = nn.Linear(512, 32_000, bias=False)": """self.head = nn.Linear(512, 32_000, bias=False)
        self.requires_grad_(False)
        self.layer.requires_grad_()"""
            },
            title="Trained before, and frozen",
        ),
        bad[0].but({"= nn.Embedding(32_000, 512)": "= nn.Embedding(16_000, 512)"}, title="Two vocabularies"),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        parameters = [b for b in trace.buffers if b.category is Category.PARAMETER]
        tables = {b.id: b for b in parameters if len(b.shape) == 2 and b.shape[0] >= MIN_ROWS}
        looked_up = {
            g.buffer
            for node in trace.nodes
            if node.op in _LOOKUPS and node.phase in FORWARDS
            for g in node.inputs
            if g.buffer in tables
        }
        if not looked_up:
            return
        trained = {b.name for b in trace.buffers if b.category is Category.GRADIENT}
        threshold = MIN_SHARE * sum(parameter.nbytes for parameter in parameters)
        timeline = context.timeline
        for head in _heads(trace, tables, looked_up):
            table = next(
                (
                    tables[b]
                    for b in sorted(looked_up, reverse=True)  # of several, the one nearest to the head
                    if (tables[b].shape, tables[b].dtype) == (head.weight.shape, head.weight.dtype)
                ),
                None,
            )
            if table is None or head.weight.nbytes < threshold or head.weight.name not in trained:
                continue
            removed, gradients = _made_for(trace, head.weight)
            last_nodes = _added(trace, table, gradients)
            tied = end_at(without(timeline, removed), last_nodes)
            nbytes_alive = live(tied)
            # Autograd adds the two gradients out of place: for a moment both and the sum exist.
            adding = (nbytes_alive[(tied.buffers[g].died or 1) - 1] + tied.buffers[g].nbytes for g in last_nodes)
            nbytes = most_alive(timeline, [*removed, *gradients])
            yield self.finding(
                context,
                head.product.frame,
                f"`{table.name}` and `{head.weight.name}` are two parameters of {head.weight.shape[0]:,} x "
                f"{head.weight.shape[1]:,}. The second takes {format_nbytes(nbytes)} at one time, with "
                f"{_counted(trace, removed)}.",
                nbytes=nbytes,
                peak_change=max(*nbytes_alive, *adding) - max(live(timeline)),
                fix="If the model is trained from the start and may use one table for both ends, tie them: "
                "`head.weight = embedding.weight`, or `tie_word_embeddings=True` in a Hugging Face config.",
            )


class _Head(NamedTuple):
    weight: Buffer
    product: Node


def _heads(trace: Trace, tables: dict[int, Buffer], looked_up: set[int]) -> Iterator[_Head]:
    """Yield the weights with one row per word that products use transposed, at their last use in forward."""
    heads: dict[int, _Head] = {}
    for node in trace.nodes:
        if node.op in PRODUCTS and node.phase in FORWARDS:
            weight = node.inputs[-1]
            table = tables.get(weight.buffer)
            if table is not None and table.id not in looked_up and weight.shape == table.shape[::-1]:
                heads[table.id] = _Head(table, node)
    yield from heads.values()


def _made_for(trace: Trace, weight: Buffer) -> tuple[list[int], list[int]]:
    """Return Buffers that a tied weight would not need, and its gradients."""
    belongings = belonging(trace, {weight.name})
    gradients = [buffer.id for buffer in belongings if buffer.category is Category.GRADIENT]
    kept = [buffer.id for buffer in belongings if buffer.category is not Category.GRADIENT]
    return kept + [buffer.id for buffer in temporaries_of(trace, weight)], gradients


def _counted(trace: Trace, removed: list[int]) -> str:
    """Name what else, beside the weight, the bytes belong to."""
    kinds = {trace.buffers[buffer].category for buffer in removed}
    of_optimizer = {Category.OPTIMIZER_STATE: "state", Category.TEMPORARY: "temporaries"}
    parts = [word for category, word in of_optimizer.items() if category in kinds]
    return "its gradient" + (f" and the optimizer's {' and '.join(parts)}" if parts else "")


def _added(trace: Trace, table: Buffer, gradients: list[int]) -> dict[int, int]:
    """Return for each gradient of the weight the Node of its step that creates the gradient of the embedding."""
    made = {
        node.step: node.index
        for node in trace.nodes
        if node.op == _EMBEDDING_BACKWARD and node.outputs[0].shape == table.shape
    }
    steps = {gradient: trace.buffers[gradient].step for gradient in gradients}
    return {gradient: made[step] for gradient, step in steps.items() if step in made}

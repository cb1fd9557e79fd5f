from collections.abc import Iterator
from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Category, Node, Phase, Trace
from memlint.memory.timeline import alive_at
from memlint.whatif.changes import WithoutDropout
from memlint_rules.support.flow import PRODUCTS, Flow

_DROPOUT = "aten.native_dropout.default"
_CAST = "aten._to_copy.default"


class AdapterDropout(TraceRule):
    """Dropout before an adapter keeps a copy of every layer's input beside the input itself.

    Looks for layers whose weight is frozen and whose input also goes through a Dropout into a trained projection, as in
    LoRA with `lora_dropout` above 0, and reports the peak without the dropout.

    ## Why it costs memory

    The frozen layer does not save its input, and the adapter could save the input itself, which neighbouring layers
    save as well. With dropout each adapter saves a copy of the input with zeros in it, and the dropout mask: an
    attention layer with adapters for query, key and value keeps three copies and three masks.

    ## How the saving is computed

    The step is traced again with a probability of 0 in these modules.

    ## Known limits

    Dropout is a regulariser, so training runs differently without it. Functional dropout is not detected, only modules
    are.

    - https://arxiv.org/abs/2106.09685
    - https://huggingface.co/docs/peft/package_reference/lora
    """

    code, name, severity = "MEM120", "adapter-dropout", Severity.INFO
    _layer = """\
class Adapted(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.dropout = nn.Dropout(0.1)
        self.down = nn.Linear(width, 8, bias=False)
        self.up = nn.Linear(8, width, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(self.dropout(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = Adapted(512), Adapted(512), Adapted(512)

    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))
"""
    bad = (Case.of_model(_layer, 'Model(), {"x": torch.randn(16, 8, 256, 512)}', line=14),)
    good = (
        bad[0].but({"nn.Dropout(0.1)": "nn.Identity()"}),
        bad[0].but({".requires_grad_(False)": ""}, title="The layer itself is trained"),
    )

    def check(self, context: Context) -> Findings:
        """Yield at most one finding, for all adapters."""
        if context.workload.mode != "train" or not context.timeline.events:
            return
        adapters = tuple(_adapters(context.trace))
        paths = tuple(dict.fromkeys(adapter.path for adapter in adapters))
        buffers = frozenset[int]().union(*(adapter.buffers for adapter in adapters))
        alive = [each for each in alive_at(context.timeline, context.estimate.peak_event) if each.id in buffers]
        nbytes, peak = sum(each.nbytes for each in alive), context.estimate.requested.estimate
        answer = context.what_if(WithoutDropout(paths)) if is_notable(-nbytes, peak) else None
        if answer is None or not is_notable(answer.peak_change, peak):
            return
        yield self.finding(
            context,
            max(alive, key=lambda each: each.nbytes).frame,
            f"{len(paths)} adapters of frozen layers, the first with `{paths[0]}`, keep the input that dropout made "
            f"for each of them, and its mask: {format_nbytes(nbytes)} at the peak.",
            nbytes=nbytes,
            peak_change=answer.peak_change,
            confidence=Confidence.EXACT_RETRACE,
            fix="Train without it if it is not needed: `lora_dropout=0`.",
        )


class _Adapter(NamedTuple):
    """A Dropout before an adapter: its path, and what it keeps for backward."""

    path: str
    buffers: frozenset[int]


def _adapters(trace: Trace) -> Iterator[_Adapter]:
    flow, kinds = Flow.of(trace), dict(trace.modules)
    trained = {buffer.name.rpartition(".")[0] for buffer in trace.buffers if buffer.category is Category.GRADIENT}
    weights = {buffer.name.rpartition(".")[0] for buffer in trace.buffers if buffer.category is Category.PARAMETER}
    for node in trace.nodes:
        if node.op != _DROPOUT or kinds.get(node.module) != "Dropout" or node.phase is Phase.OTHER:
            continue
        dropped, cast = _product(flow, node.outputs[0].buffer, node)
        if dropped is None or dropped.module not in trained:
            continue
        layer = _common(node.module, dropped.module)
        beside = {each.module for each in _beside(flow, node) if layer and each.module.startswith(f"{layer}.")}
        if beside & (weights - trained):
            yield _Adapter(node.module, frozenset((*(each.buffer for each in node.outputs), *cast)))


def _product(flow: Flow, buffer: int, after: Node) -> tuple[Node | None, tuple[int, ...]]:
    """Return the first matrix product that reads a Buffer or a cast of it, and the cast."""
    reader = next(flow.readers(buffer, after.index), None)
    if reader is not None and reader.op == _CAST and reader.outputs[0].buffer >= 0:
        found, _ = _product(flow, reader.outputs[0].buffer, reader)
        return found, (reader.outputs[0].buffer,)
    return (reader if reader is not None and reader.op in PRODUCTS else None), ()


def _beside(flow: Flow, node: Node) -> Iterator[Node]:
    """Yield the matrix products that read the input of a Node, or the tensor that this input is a cast of."""
    buffers = [node.inputs[0].buffer]
    writer = flow.writer(buffers[0], node.index)
    if writer is not None and writer.op == _CAST:
        buffers.append(writer.inputs[0].buffer)
    yield from (reader for each in buffers for reader in flow.readers(each, -1) if reader.op in PRODUCTS)


def _common(path: str, other: str) -> str:
    """Return the innermost module that contains both: `layer` for `layer.dropout` and `layer.down`."""
    parts, others = path.split("."), other.split(".")
    shared = next((n for n, (a, b) in enumerate(zip(parts, others, strict=False)) if a != b), 0)
    return ".".join(parts[:shared])

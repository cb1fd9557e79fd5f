import ast
from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import Category, Geometry, Node
from memlint.memory.timeline import without
from memlint.source.calls import argument, called
from memlint.source.text import dotted_name, source_at
from memlint_rules.support.flow import MIN_NBYTES, Flow, grouped, made, most_alive, peak_change

MIN_LENGTH = 32
"""Minimum number of positions; smaller masks are not worth reporting."""

_ATTENTION = frozenset(
    f"aten._scaled_dot_product_{kernel}.default" for kernel in ("efficient_attention", "flash_attention_for_cpu")
)
"""Fused attention kernels whose fourth tensor is a mask."""

_TRIANGULAR = frozenset(f"aten.{op}.default" for op in ("tril", "triu", "tril_", "triu_"))
_OF_CONSTANTS = _TRIANGULAR | frozenset(
    f"aten.{op}"
    for op in (
        "_to_copy.default", "bitwise_not.default", "clone.default", "constant_pad_nd.default", "copy_.default",
        "empty.memory_format", "empty_like.default", "eq.Scalar", "fill_.Scalar", "logical_not.out",
        "masked_fill.Scalar", "masked_fill_.Scalar", "mul.Tensor", "ne.Scalar", "rsub.Scalar", "sub.Tensor",
        "where.ScalarOther", "where.ScalarSelf", "where.self", "zero_.default",
    )
)  # fmt: skip
"""Kernels that create masks. Their tensors do not depend on the inputs of the model."""

_OWN_MASK = "generate_square_subsequent_mask("
"""The mask of `nn.Transformer`: minus infinity above the diagonal."""


class ExplicitCausalMask(TraceRule):
    """Fused attention is given a causal mask as a tensor where `is_causal=True` would do.

    Follows the mask of `scaled_dot_product_attention` back to one `tril` or `triu` of a constant. Masks that depend on
    the model's inputs, such as padding, are not reported, nor are other diagonals and rectangular masks.

    ## Why it costs memory

    The mask has one element for each pair of positions, so it grows with the square of the length. A boolean mask is
    converted to the dtype of the queries in every call, and each layer keeps its own copy for backward.
    `is_causal=True` needs no tensor, and in half precision allows FlashAttention, which does not support masks.

    ## How the saving is computed

    The mask and everything it was made from are removed, and the peak is computed again.

    ## Known limits

    Masks built by comparing positions, as in `rows >= columns`, are not recognised, nor are buffers below 1 MiB. The
    diagonal is read from the source line. Savings of FlashAttention beyond the mask are not counted.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
    """

    code, name, severity = "MEM105", "explicit-causal-mask", Severity.WARNING
    model = """\
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.projection = nn.Linear(64, 192)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.projection(x).view(batch, length, 3, 4, 16).permute(2, 0, 3, 1, 4)
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + y.transpose(1, 2).flatten(2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(Attention() for _ in range(4)))

    def forward(self, x):
        return self.layers(x)
"""
    example = Case.of_model(
        model, 'Model(), {"x": torch.randn(2, 2048, 64)}', imports="from torch.nn import functional as F\n", line=15
    )
    bad = (
        example,
        example.but(
            {
                "torch.ones(length, length, dtype=torch.bool, device=x.device).tril(": (
                    'torch.full((length, length), float("-inf"), device=x.device).triu(1'
                )
            },
            title="Minus infinity above the diagonal",
        ),
    )
    good = (
        example.but(
            {
                (
                    "mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()\n"
                    "        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"
                ): "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)"
            }
        ),
        example.but(
            {
                "mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril(": (
                    "ones = torch.ones(length, length, dtype=torch.bool, device=x.device"
                ),
                "q, k, v, attn_mask=mask": "q, k, v, attn_mask=ones.tril() & ones.triu(-64)",
            },
            title="A window of positions",
        ),
        example.but(
            {
                "mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()": (
                    "ones = torch.ones(length, length, dtype=torch.bool, device=x.device)\n"
                    "        mask = ones.tril() & (x.sum(-1) != 0)[:, None, None]"
                )
            },
            title="Padding, which depends on the input",
        ),
    )

    def check(self, context: Context) -> Findings:
        flow, timeline = Flow.of(context.trace), context.timeline
        masked = ((node, mask) for node in flow.forward(*_ATTENTION) if (mask := _square_mask(node)))
        origins = ((node, _origin(flow, mask, node.index)) for node, mask in masked)
        lines = grouped((node.frame, (node, origin)) for node, origin in origins if origin and _is_causal(origin))
        for frame, group in lines.items():
            masks = _only_for_masks(flow, group)
            nbytes = most_alive(timeline, masks)
            if nbytes < MIN_NBYTES:
                continue
            length = group[0][0].inputs[3].shape[-1]
            yield self.finding(
                context,
                frame,
                f"Attention is given a causal mask of {length:,} x {length:,} positions as a tensor; masks and what "
                f"they were made from take {format_nbytes(nbytes)} at one time.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, without(timeline, masks)),
                fix="Pass `is_causal=True` beside `attn_mask`: then the module hands no mask on."
                if "MultiheadAttention" in dict(context.trace.modules).get(group[0][0].module, "")
                else "Pass `is_causal=True` in place of `attn_mask`.",
            )


class _Origin(NamedTuple):
    """The kernels and tensors that a mask was made from."""

    buffers: frozenset[int]
    nodes: frozenset[int]
    triangles: tuple[Node, ...]


def _square_mask(node: Node) -> Geometry | None:
    if len(node.inputs) < 4 or len(node.inputs[3].shape) < 2:
        return None
    mask = node.inputs[3]
    return mask if mask.buffer >= 0 and mask.shape[-1] == mask.shape[-2] >= MIN_LENGTH else None


def _origin(flow: Flow, mask: Geometry, before: int) -> _Origin | None:
    """Return everything that went into a mask; None if part of it is not constant."""
    buffers: set[int] = set()
    nodes: dict[int, Node] = {}
    waiting = [(mask.buffer, before)]
    while waiting:
        buffer, index = waiting.pop()
        writer = flow.writer(buffer, index)
        if writer is None or writer.op not in _OF_CONSTANTS:
            return None
        buffers.add(buffer)
        if writer.index not in nodes:
            nodes[writer.index] = writer
            fresh = made(writer) if writer.op.endswith(".out") else set()
            waiting += [(g.buffer, writer.index) for g in writer.inputs if g.buffer >= 0 and g.buffer not in fresh]
    triangles = tuple(node for node in nodes.values() if node.op in _TRIANGULAR)
    return _Origin(frozenset(buffers), frozenset(nodes), triangles)


def _is_causal(origin: _Origin) -> bool:
    """Return True if one line selects everything up to the diagonal, or everything beyond it."""
    triangle, *more = origin.triangles or (None,)
    if triangle is None or triangle.frame is None or more:
        return False
    if (source := source_at(triangle.frame.path)) is None:
        return False
    if any(_OWN_MASK in line for line in source.lines[triangle.frame.line - 1 : triangle.frame.line]):
        return True
    name = "tril" if "tril" in triangle.op else "triu"
    calls = [call for call in source.index.of(ast.Call) if call.func.end_lineno == triangle.frame.line]
    diagonals = [
        argument(call, "diagonal", 1 if dotted_name(call.func).startswith("torch.") else 0)
        for call in calls
        if called(call).rstrip("_") == name
    ]
    causal = "0" if name == "tril" else "1"
    return [ast.unparse(each) if each else "0" for each in diagonals] == [causal]


def _only_for_masks(flow: Flow, group: list[tuple[Node, _Origin]]) -> set[int]:
    """Return the Buffers that only masks and attention read."""
    nodes = frozenset().union(*(origin.nodes for _, origin in group))
    buffers = frozenset().union(*(origin.buffers for _, origin in group))
    return {
        buffer
        for buffer in buffers
        if all(reader.index in nodes or "_scaled_dot_product_" in reader.op for reader in flow.readers(buffer, -1))
        and flow.trace.buffers[buffer].category is not Category.PARAMETER
    }

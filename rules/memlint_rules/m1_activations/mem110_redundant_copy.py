import linecache
import re
from enum import Enum, auto
from math import prod

from memlint.base.ownership import is_users
from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import FORWARDS, Node
from memlint.memory.timeline import Timeline, merge, resize, without
from memlint_rules.support.flow import MIN_NBYTES, Flow, grouped, most_alive, numel, peak_change

_BROADCASTS = frozenset(
    f"aten.{op}.Tensor" for op in ("add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_", "maximum", "minimum")
)
_COPIES = frozenset({"aten.repeat.default", "aten.clone.default", "aten._to_copy.default"})
_COPY = re.compile(r"\.clone\(|\bclone\(|copy=True|deepcopy\(|\.copy\(")


class RedundantCopy(TraceRule):
    """A tensor is copied although neither the copy nor the original changes afterwards.

    Reports `clone()` and casts with `copy=True` that keep the layout, if nothing writes to the original or the copy
    while both are alive, and `repeat` if its result is only added to or multiplied with a tensor that has the full size
    anyway. In half precision on CUDA it also reports keys and values that are repeated for grouped queries.

    ## Why it costs memory

    A copy is another tensor of the same size, and if backward needs it, it stays until then. Arithmetic broadcasts
    dimensions of size 1, so the repeated tensor is unnecessary. FlashAttention itself assigns keys to groups of
    queries, and saves them once for backward.

    ## How the saving is computed

    The original and its copy become one storage, alive from the birth of the first to the death of the last; results of
    `repeat` are removed, and repeated keys and values get the size of the originals. The peak is computed again.

    ## Known limits

    Copies of a part of a larger tensor are not reported, because they allow the larger one to be freed. Nor are copies
    that make a tensor contiguous for a kernel that needs this. A clone that protects against a caller who changes the
    tensor is reported if no caller in the trace does so. With `enable_gqa=True` no fused kernel supports float32, so
    repeated keys are right there. Inside installed packages only these keys and values are reported, because the user
    can choose another implementation of attention, but cannot change other copies there.

    - https://docs.pytorch.org/docs/stable/notes/broadcasting.html
    - https://docs.pytorch.org/docs/stable/generated/torch.clone.html
    """

    code, name, severity = "MEM110", "redundant-copy", Severity.WARNING
    example = Case.of_layers(
        {
            "position": "nn.Parameter(torch.zeros(1, 512, 256))",
            "up": "nn.Linear(256, 1024)",
            "down": "nn.Linear(1024, 256)",
        },
        """\
x = x + self.position
hidden = self.up(x).relu()
return self.down(hidden.clone())""",
        {"x": "torch.randn(64, 512, 256)"},
        line=15,
    )
    bad = (
        example,
        example.but(
            {
                "x = x + self.position": "x = x * self.position.repeat(64, 1, 1)",
                "return self.down(hidden.clone())": "return self.down(hidden)",
            },
            title="A repeated tensor that broadcasting would do for",
            line=13,
        ),
        Case.of_model(
            """\
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(512, 512), nn.Linear(512, 64), nn.Linear(512, 64)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, 64)).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = k.repeat_interleave(8, 1), v.repeat_interleave(8, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + y.transpose(1, 2).flatten(2)
""",
            "nn.Sequential(*(Attention() for _ in range(4))), torch.randn(4, 1024, 512)",
            imports="from torch.nn import functional as F\n",
            title="Keys and values of grouped queries",
            dtype="bfloat16",
        ),
    )
    good = (
        example.but({"return self.down(hidden.clone())": "return self.down(hidden)"}),
        bad[2].but(
            {
                (
                    "k, v = k.repeat_interleave(8, 1), v.repeat_interleave(8, 1)\n"
                    "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)"
                ): "y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)"
            },
            title="Keys and values of grouped queries",
        ),
        bad[2].but(title="In float32 they have to be repeated", dtype="float32"),
        example.but(
            {
                "x = x + self.position": "y = x.clone()\n        x = y.mul_(2) + x",
                "return self.down(hidden.clone())": "return self.down(hidden)",
            },
            title="The copy is written to",
        ),
        example.but(
            {
                "x = x + self.position": "x = torch.cat([x, x, x], 1)[:, :512].clone()",
                "return self.down(hidden.clone())": "return self.down(hidden)",
            },
            title="The copy lets a larger tensor go",
        ),
    )

    def check(self, context: Context) -> Findings:
        flow, timeline = Flow.of(context.trace), context.timeline
        copies = (n for n in flow.forward(*_COPIES) if n.step >= 0 and n.frame and min(_buffers(n)) >= 0)
        kinds = ((node, _kind(flow, node)) for node in copies)
        lines = grouped(
            ((node.frame, kind), node) for node, kind in kinds if kind is not None and _is_changeable(node, kind)
        )
        for (frame, kind), group in lines.items():
            nbytes = most_alive(timeline, [node.outputs[0].buffer for node in group])
            if nbytes < MIN_NBYTES:
                continue
            exact = kind is _Kind.SAME
            yield self.finding(
                context,
                frame,
                _MESSAGES[kind].format(shape=list(group[-1].outputs[0].shape), size=format_nbytes(nbytes)),
                nbytes=nbytes,
                peak_change=peak_change(timeline, _edited(timeline, kind, group)),
                confidence=Confidence.EXACT_LIFETIME if exact else Confidence.MODELLED,
                fix=_FIXES[kind],
            )


class _Kind(Enum):
    """The reason why a copy is not needed."""

    SAME = auto()
    """Original and copy have one layout, and nothing writes to either."""
    BROADCAST = auto()
    """Arithmetic would broadcast."""
    GROUPED = auto()
    """FlashAttention accepts fewer heads of keys and values than of queries."""


_MESSAGES = {
    _Kind.SAME: "A tensor of shape {shape} is copied here, and neither the copy nor the original changes while both "
    "are alive: {size} at one time.",
    _Kind.BROADCAST: "`repeat` writes a tensor of shape {shape} that is only combined with tensors of that shape, "
    "{size} at one time.",
    _Kind.GROUPED: "Keys or values are repeated in memory to shape {shape} for attention with grouped queries, {size} "
    "at one time.",
}
_FIXES = {
    _Kind.SAME: "Use the tensor itself in place of its copy.",
    _Kind.BROADCAST: "Leave `repeat` out and let the operation broadcast, or use `expand`, which copies nothing.",
    _Kind.GROUPED: "Pass keys and values as they are to `scaled_dot_product_attention(..., enable_gqa=True)`.",
}


def _kind(flow: Flow, node: Node) -> _Kind | None:
    if node.op == "aten.repeat.default":
        return _Kind.BROADCAST if _is_broadcast_only(flow, node) else None
    if _keeps_layout(node):
        named = node.frame is not None and _COPY.search(linecache.getline(node.frame.path, node.frame.line))
        return _Kind.SAME if named and _is_redundant(flow, node) else None
    return _Kind.GROUPED if _num_repeats(node) > 1 and _is_for_flash_attention(flow, node) else None


def _is_changeable(node: Node, kind: _Kind) -> bool:
    """Return True if the user can change it: in an installed package only the attention implementation is a choice."""
    return kind is _Kind.GROUPED or node.frame is None or is_users(node.frame.path)


def _edited(timeline: Timeline, kind: _Kind, group: list[Node]) -> Timeline:
    if kind is _Kind.SAME:
        return merge(timeline, {node.outputs[0].buffer: node.inputs[0].buffer for node in group})
    if kind is _Kind.BROADCAST:
        return without(timeline, {node.outputs[0].buffer for node in group})
    copies = {node.outputs[0].buffer: _num_repeats(node) for node in group}
    return resize(timeline, {copy: timeline.buffers[copy].nbytes // times for copy, times in copies.items()})


def _buffers(node: Node) -> tuple[int, int]:
    return node.inputs[0].buffer, node.outputs[0].buffer


def _keeps_layout(node: Node) -> bool:
    source, copied = node.inputs[0], node.outputs[0]
    return (source.shape, source.stride, source.dtype) == (copied.shape, copied.stride, copied.dtype)


def _num_repeats(node: Node) -> int:
    """Return how often each element of the original appears in the copy; in memory it exists once."""
    source = node.inputs[0]
    return prod(n for n, stride in zip(source.shape, source.stride, strict=True) if stride == 0)


def _is_for_flash_attention(flow: Flow, node: Node) -> bool:
    """Return True if only FlashAttention reads the copy, as keys or values."""
    copy = node.outputs[0].buffer
    readers = [reader for reader in flow.readers(copy, node.index) if reader.phase in FORWARDS]
    return bool(readers) and all(
        reader.op == "aten._scaled_dot_product_flash_attention.default"
        and reader.inputs[0].buffer != copy
        and all(numel(g) == numel(node.outputs[0]) for g in reader.inputs[1:3] if g.buffer == copy)
        for reader in readers
    )


def _is_redundant(flow: Flow, node: Node) -> bool:
    """Return True if both tensors are whole storages, and nothing writes to either while both are alive."""
    original, copy = _buffers(node)
    first, second = flow.trace.buffers[original], flow.trace.buffers[copy]
    if first.nbytes != second.nbytes or (first.died is None and second.died is None):
        return False
    ends = [flow.trace.event_nodes[each.died] for each in (first, second) if each.died is not None]
    return not any(flow.is_written(buffer, node.index, min(ends)) for buffer in (original, copy))


def _is_broadcast_only(flow: Flow, node: Node) -> bool:
    """Return True if only sizes of 1 were repeated and all readers are arithmetic with another full-size operand."""
    source, copied = node.inputs[0], node.outputs[0]
    shape = (1,) * (len(copied.shape) - len(source.shape)) + source.shape
    if any(n not in (1, m) for n, m in zip(shape, copied.shape, strict=True)):
        return False
    readers = [reader for reader in flow.readers(copied.buffer, node.index) if reader.phase in FORWARDS]
    return bool(readers) and all(
        reader.op in _BROADCASTS
        and len(reader.inputs) == 2
        and reader.inputs[0].buffer != reader.inputs[1].buffer
        and all(numel(g) == numel(reader.outputs[0]) for g in reader.inputs)
        and all(g.shape == copied.shape for g in reader.inputs if g.buffer == copied.buffer)
        and copied.buffer not in {g.buffer for g in reader.outputs}
        for reader in readers
    )

from math import prod

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import FORWARDS, Buffer, Category, Phase, Trace
from memlint.memory.timeline import resize
from memlint_rules.support.flow import Flow, grouped, made, most_alive, peak_change

MIN_NUMEL = 2**20
_WIDE = frozenset({"float32", "float64", "int32", "int64"})

_PHASES = frozenset({*FORWARDS, Phase.OTHER})
_CONSTANTS = frozenset({"fill_.Scalar", "zero_.default"})
_COMPARISONS = frozenset(f"{op}.{kind}" for op in ("eq", "ge", "gt", "le", "lt", "ne") for kind in ("Scalar", "Tensor"))
_TRIANGLES = frozenset({"tril.default", "tril_.default", "triu.default", "triu_.default"})
_MASK_TO_MASK = _TRIANGLES | {
    "_to_copy.default", "bitwise_and.Tensor", "bitwise_not.default", "bitwise_or.Tensor", "clone.default",
    "copy_.default", "expand_copy.default", "logical_and.default", "logical_not.default", "logical_or.default",
    "masked_fill.Scalar", "masked_fill_.Scalar", "mul.Scalar", "mul.Tensor", "mul_.Tensor", "repeat.default",
    "rsub.Scalar", "sub.Tensor", "where.ScalarOther", "where.ScalarSelf", "where.self",
}  # fmt: skip
"""Kernels that make masks from masks and numbers."""
_ARITHMETIC = ("mul", "rsub", "sub")
_MASKING = frozenset(
    {
        "add.Tensor", "add_.Tensor", "masked_fill.Scalar", "masked_fill_.Scalar", "masked_fill.Tensor", "mul.Tensor",
        "mul_.Tensor", "sub.Tensor", "where.ScalarOther", "where.ScalarSelf", "where.self",
    }
)  # fmt: skip
"""Kernels that apply a mask, and could use a boolean one."""


class WideMaskDtype(TraceRule):
    """A mask is stored with four or eight bytes per element.

    Follows tensors made from comparisons, triangles and constants, and reports those of a million elements or more in
    float32, float64, int32 or int64 that only kernels applying them read: `masked_fill`, `where`, additions and
    multiplications. Masks for scaled dot product attention are not reported, because it converts boolean masks to
    floats itself.

    ## Why it costs memory

    A boolean takes one byte, float32 four and int64 eight. A causal mask of 4096 x 4096 takes 64 MiB in float32 and
    16 MiB as booleans, and each step from a comparison to a bias for the scores makes another such tensor.

    ## How the saving is computed

    These tensors are reduced to one byte per element in every step, and the peak is computed again.

    ## Known limits

    A mask of shape [batch, 1, 1, length] that broadcasts is smaller still. `masked_fill` and `where` keep the boolean
    mask for backward; an addition does not.

    - https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_fill_.html
    """

    code, name, severity = "MEM305", "wide-mask-dtype", Severity.WARNING
    model = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)
        self.register_buffer("keep", torch.ones(4096, 4096).tril())

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = (q @ k.mT).masked_fill(self.keep == 0, float("-inf"))
        return scores.softmax(-1) @ v
"""
    bad = (
        Case.of_model(model, 'Model(), {"x": torch.randn(1, 4096, 64)}', line=9),
        Case.of_layers(
            {"qkv": "nn.Linear(64, 192)"},
            """\
q, k, v = self.qkv(x).chunk(3, dim=-1)
mask = (ids != 0).long()[:, None, :].expand(-1, x.shape[1], -1)
scores = q @ k.mT + (1.0 - mask) * -1e4
return scores.softmax(-1) @ v""",
            {"x": "torch.randn(1, 4096, 64)", "ids": "torch.zeros(1, 4096, dtype=torch.int64)"},
            title="A bias made in every forward",
            line=13,
        ),
    )
    good = (
        bad[0].but(
            {
                '"keep", torch.ones(4096, 4096).tril()': '"keep", torch.ones(4096, 4096, dtype=torch.bool).tril()',
                'self.keep == 0, float("-inf")': '~self.keep, float("-inf")',
            }
        ),
        bad[0].but({"self.keep == 0,": "self.keep.cumsum(0) == 3,"}, title="Numbers that are no mask"),
        Case.of_layers(
            {"head": "nn.Linear(64, 512)"},
            """\
scores = self.head(x).sigmoid()
weight = torch.ones(scores.shape, device=x.device) * 0.25
weight = torch.where(scores > 0.5, weight, 1.0 - weight)
return weight * scores""",
            {"x": "torch.randn(4096, 64)"},
            title="Weights of a loss, which have two values as well",
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        masks = _masks(trace)
        wide = [
            trace.buffers[b]
            for b in sorted(masks)
            if trace.buffers[b].dtype in _WIDE and prod(trace.buffers[b].shape) >= MIN_NUMEL
        ]
        if not wide:
            return
        flow, timeline = Flow.of(trace), context.timeline
        lines = grouped((flow.made_at(buffer), buffer) for buffer in wide if _only_masks(flow, buffer, masks))
        for frame, buffers in lines.items():
            sizes = {buffer.id: prod(buffer.shape) for buffer in buffers}
            nbytes = most_alive(timeline, sizes)
            if not nbytes:
                continue
            biggest = max(buffers, key=lambda buffer: (buffer.nbytes, buffer.name))
            name = f"The mask `{biggest.name}`" if biggest.name else "A mask"
            yield self.finding(
                context,
                frame,
                f"{name} of {' x '.join(map(str, biggest.shape))} is {biggest.dtype}; such masks made here take "
                f"{format_nbytes(nbytes)} at one time, and one byte per element would do.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, resize(timeline, sizes)),
                fix="Keep the mask as `torch.bool`, in a shape that broadcasts, and apply it with `masked_fill` or "
                "`where`.",
            )


def _masks(trace: Trace) -> set[int]:
    """Return Buffers made only from comparisons, triangles and constants, through masks, and inputs named as masks.

    A choice of `where` between computed constants is not a mask: the weights of a loss have two values as well.
    """
    masks = {b.id for b in trace.buffers if b.category is Category.INPUT and "mask" in b.name and b.dtype != "bool"}
    constants: set[int] = set()
    computed: set[int] = set()
    for node in trace.nodes:
        if node.phase not in _PHASES:
            continue
        op = node.op.removeprefix("aten.")
        written = made(node)
        if op in _CONSTANTS:
            constants |= written
            masks -= written
            computed -= written
            continue
        read = [g for g in node.inputs if g.buffer >= 0 and g.shape]
        usable = constants - computed if op.startswith("where.") else constants
        known = all(g.buffer in masks or g.buffer in usable for g in read)
        if op in _COMPARISONS or (
            op in _MASK_TO_MASK and known and (op in _TRIANGLES or any(g.buffer in masks for g in read))
        ):
            masks |= written
        elif op in _MASK_TO_MASK and known and read:
            constants |= written
            if op.startswith(_ARITHMETIC) or any(g.buffer in computed for g in read):
                computed |= written
        elif not op.startswith("empty"):
            masks -= written
            constants -= written
    return masks


def _only_masks(flow: Flow, buffer: Buffer, masks: set[int]) -> bool:
    """Return True if every reader of the mask makes other masks from it or applies it."""
    readers = [node for node in flow.readers(buffer.id, buffer.node) if node.phase is not Phase.BACKWARD]
    return bool(readers) and all(made(node) <= masks or node.op.removeprefix("aten.") in _MASKING for node in readers)

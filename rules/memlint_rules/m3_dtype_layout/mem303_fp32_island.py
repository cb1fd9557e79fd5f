from collections import defaultdict
from collections.abc import Iterator

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import FORWARDS, Frame, Geometry, Node, Phase, Trace
from memlint.memory.timeline import resize
from memlint_rules.support.flow import HALF, Flow, most_alive, numel, peak_change

_BATCH_NORMS = frozenset({"aten.cudnn_batch_norm.default", "aten.native_batch_norm.default"})
_NORMS = _BATCH_NORMS | {
    "aten._fused_rms_norm.default",
    "aten.native_group_norm.default",
    "aten.native_layer_norm.default",
}
"""Kernels that accept half precision and compute in float32 internally: their statistics and sums are float32 for any
input (aten/src/ATen/native/cuda/layer_norm_kernel.cu, group_norm_kernel.cu, Normalization.cuh).
"""
_CAST = "aten._to_copy.default"
_SINGLE = frozenset({"float32"})


class Fp32Island(TraceRule):
    """Activations are cast to float32 for a normalisation that computes in float32 internally anyway.

    Looks for a cast to float32 that only a LayerNorm, GroupNorm, RMSNorm or BatchNorm reads, whose output is read only
    by casts back to half precision. Under autocast only BatchNorm is checked: the others run in float32 there anyway.

    ## Why it costs memory

    The cast input is kept for backward with four bytes per element instead of two, and the output, its gradient and the
    gradient of the input each exist in both precisions. The kernels of these normalisations compute in float32
    internally, whatever the dtype of their input.

    ## How the saving is computed

    The cast input is reduced to half its bytes, or to none if the tensor that it was cast from lives as long; the
    float32 output and gradients are removed; the peak is computed again.

    ## Known limits

    On CUDA, LayerNorm and GroupNorm require weights of their input's dtype; rounding the weights to half precision
    changes results a little. Casts around other operations, such as softmax, are not reported.

    - https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32
    """

    code, name, severity = "MEM303", "fp32-island", Severity.WARNING
    model = """\
class Norm(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x.float(), self.normalized_shape, self.weight.float(), self.bias.float()).to(x.dtype)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), Norm(256)) for _ in range(8)))

    def forward(self, x):
        return self.layers(x)
"""
    bad = (
        Case.of_model(
            model,
            'Model(), {"x": torch.randn(16, 1024, 256)}',
            imports="from torch.nn import functional as F\n",
            line=8,
            dtype="bfloat16",
        ),
        Case.of_layers(
            {"conv": "nn.Conv2d(3, 64, 3)", "norm": "nn.BatchNorm2d(64)"},
            """\
x = self.conv(x)
return self.norm(x.float()).to(x.dtype).relu()""",
            {"x": "torch.randn(16, 3, 128, 128)"},
            title="BatchNorm under autocast",
            line=13,
            dtype="bf16-amp",
        ),
    )
    good = (
        bad[0].but(
            {"x.float()": "x", "self.weight.float()": "self.weight", "self.bias.float()).to(x.dtype)": "self.bias)"}
        ),
        bad[0].but(title="Autocast casts it anyway", dtype="bf16-amp"),
        bad[0].but(
            {
                "F.layer_norm(x.float(), self.normalized_shape, self.weight.float(), self.bias.float()": (
                    "(F.layer_norm(x.float(), self.normalized_shape, self.weight.float(), self.bias.float()) * 2.0"
                )
            },
            title="The float32 output is used",
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        norms = _BATCH_NORMS if _is_autocast(trace) else _NORMS
        cast = {n.outputs[0].buffer for n in trace.nodes if _is_cast(n, to=_SINGLE, of=HALF)}
        cast_norms = [n for n in trace.nodes if n.op in norms and n.phase in FORWARDS and n.inputs[0].buffer in cast]
        if not cast_norms or not context.device.is_cuda:
            return
        flow, timeline = Flow.of(trace), context.timeline
        lines: defaultdict[Frame | None, dict[int, int]] = defaultdict(dict)
        for node in cast_norms:
            if sizes := _without_casts(flow, node):
                lines[node.frame].update(sizes)
        for frame, sizes in lines.items():
            nbytes = most_alive(timeline, sizes)
            yield self.finding(
                context,
                frame,
                f"Activations in half precision are cast to float32 for a normalisation and back: the float32 tensors "
                f"take {format_nbytes(nbytes)} at one time.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, resize(timeline, sizes)),
                fix="Drop the casts and give the normalisation its input, and its weights, in half precision: the "
                "kernel computes in float32 internally. BatchNorm may keep float32 weights.",
            )


def _is_autocast(trace: Trace) -> bool:
    """Return True if a step casts float32 parameters to half precision."""
    return any(
        node.op == _CAST and node.step >= 0 and node.outputs[0].dtype in HALF and trace.is_parameter(node.inputs[0])
        for node in trace.nodes
    )


def _without_casts(flow: Flow, norm: Node) -> dict[int, int]:
    """Return the bytes of the float32 tensors around `norm` without the cast of its input; empty if it is necessary."""
    buffers = flow.trace.buffers
    source, cast = norm.inputs[0], flow.writer(norm.inputs[0].buffer, norm.index)
    if cast is None or not _is_cast(cast, to=_SINGLE, of=HALF):
        return {}
    made = norm.outputs[0]
    after = [node for node in flow.readers(made.buffer, norm.index) if node.phase in FORWARDS]
    if not after or not all(_is_cast(node, to=HALF, of=_SINGLE) for node in after):
        return {}
    readers = list(flow.readers(source.buffer, cast.index))
    if any(node.phase in FORWARDS and node is not norm for node in readers):
        return {}
    uncast, whole = buffers[cast.inputs[0].buffer], buffers[source.buffer]
    outlives = uncast.died is None or (whole.died is not None and uncast.died >= whole.died)
    sizes = {whole.id: 0 if outlives else whole.nbytes // 2, made.buffer: 0}
    for backward in readers:
        if backward.phase is Phase.BACKWARD:
            sizes |= dict.fromkeys(_gradients(flow, backward, source), 0)
    return sizes


def _gradients(flow: Flow, backward: Node, source: Geometry) -> Iterator[int]:
    """Yield, for the backward of a normalisation, the gradient that was cast for it, and the one cast after it."""
    for geometry in backward.inputs:
        cast = flow.writer(geometry.buffer, backward.index) if geometry.buffer >= 0 else None
        if cast is not None and cast.phase is Phase.BACKWARD and _is_cast(cast, to=_SINGLE, of=HALF):
            yield geometry.buffer
    for geometry in backward.outputs:
        readers = list(flow.readers(geometry.buffer, backward.index)) if geometry.buffer >= 0 else []
        if (
            numel(geometry) == numel(source)
            and readers
            and all(_is_cast(node, to=HALF, of=_SINGLE) for node in readers)
        ):
            yield geometry.buffer


def _is_cast(node: Node, *, to: frozenset[str], of: frozenset[str]) -> bool:
    if node.op != _CAST or node.inputs[0].buffer < 0:
        return False
    return node.inputs[0].dtype in of and node.outputs[0].dtype in to

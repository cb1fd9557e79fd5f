from collections import defaultdict

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import Category, Frame, Node, Phase, Trace
from memlint.memory.timeline import end_at
from memlint_rules.support.flow import MIN_NBYTES, Flow, most_alive, peak_change

CONVOLUTION = "aten.convolution.default"
_BACKWARD = {
    CONVOLUTION: "aten.convolution_backward.default",
    "aten.native_batch_norm.default": "aten.native_batch_norm_backward.default",
    "aten.cudnn_batch_norm.default": "aten.native_batch_norm_backward.default",
}
"""Kernels that save their input even if their parameters need no gradients, and its readers in backward.

With running statistics the result of a batch normalisation is its input times a constant. The gradients of layer
and group normalisation do need the input, and `linear` does not save it."""


class FrozenLayerSavesInput(TraceRule):
    """A frozen layer that gradients pass through keeps its input for backward without using it.

    Looks in training for convolutions, and batch normalisations with fixed statistics, whose parameters get no
    gradients, that gradients pass through, and whose input only their own backward reads again.

    ## Why it costs memory

    Only the gradients of its parameters need the input of such a layer. PyTorch saves it even if they are frozen, as
    long as a gradient has to pass through the layer, because one kernel computes all gradients. Setting
    `requires_grad=False` frees gradients and optimizer state, but no activations.

    ## How the saving is computed

    These inputs are freed right after their last use in forward, in every step, and the peak is computed again.

    ## Known limits

    `FrozenBatchNorm2d` multiplies and adds in two kernels, so in forward one more tensor of that size lives for a
    moment. Layers before the first trained one save nothing in the first place and are not reported.

    - https://arxiv.org/abs/2404.12406
    - https://docs.pytorch.org/vision/stable/generated/torchvision.ops.FrozenBatchNorm2d.html
    """

    code, name, severity = "MEM113", "frozen-layer-saves-input", Severity.WARNING
    model = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3 if i == 0 else 64, 64, 3, padding=1) for i in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(64).requires_grad_(False) for _ in range(4))

    def train(self, mode=True):
        super().train(mode)
        self.norms.eval()
        return self

    def forward(self, images):
        for layer, norm in zip(self.layers, self.norms):
            images = norm(layer(images)).relu()
        return images
"""
    bad = (Case.of_model(model, 'Model(), {"images": torch.randn(8, 3, 128, 128)}', line=18),)
    good = (
        bad[0].but(
            {
                "from torch import nn": """from torch import nn


class FrozenBatchNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        for name in ("weight", "bias", "mean", "variance"):
            self.register_buffer(name, torch.ones(width))

    def forward(self, x):
        scale = self.weight * (self.variance + 1e-5).rsqrt()
        shift = self.bias - self.mean * scale
        return x * scale.view(-1, 1, 1) + shift.view(-1, 1, 1)""",
                "nn.BatchNorm2d(64).requires_grad_(False) for _ in": "FrozenBatchNorm(64) for _ in",
            }
        ),
        bad[0].but(
            {"nn.BatchNorm2d(64).requires_grad_(False) for _ in": "nn.BatchNorm2d(64) for _ in"},
            title="Trained normalisations need their input",
        ),
        Case.of_layers(
            {
                "backbone": "nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3)).requires_grad_(False)",
                "head": "nn.Conv2d(64, 8, 3)",
            },
            "return self.head(self.backbone(images))",
            {"images": "torch.randn(8, 3, 128, 128)"},
            title="The frozen layers come before all that is trained",
        ),
    )

    def check(self, context: Context) -> Findings:
        """Yield one finding per kind of layer, on the line that keeps most."""
        trace = context.trace
        trained = {buffer.name for buffer in trace.buffers if buffer.category is Category.GRADIENT}
        if context.workload.mode != "train" or not trained:
            return
        updating = _updating(trace)
        kinds: defaultdict[bool, list[Node]] = defaultdict(list)
        for node in trace.nodes:
            if node.op not in _BACKWARD or node.phase is not Phase.FORWARD or node.module in updating:
                continue
            names = {buffer.name for buffer in trace.buffers_of(node.inputs) if buffer.category is Category.PARAMETER}
            if names and names.isdisjoint(trained) and _alone_needs_input(Flow.of(trace), node):
                kinds[node.op == CONVOLUTION].append(node)
        for convolves, group in kinds.items():
            cuts = {node.inputs[0].buffer: _last_use_in_forward(Flow.of(trace), node) for node in group}
            layers = len({node.module for node in group})
            what = "convolution" if convolves else "batch normalisation"
            nbytes = most_alive(context.timeline, cuts)
            if nbytes < MIN_NBYTES:
                continue
            yield self.finding(
                context,
                _line_of_most(trace, group),
                f"Frozen {what}, in {layers} {'modules' if layers > 1 else 'module'}, keeps {format_nbytes(nbytes)} of "
                "inputs for backward that no gradient is computed from.",
                nbytes=nbytes,
                peak_change=peak_change(context.timeline, end_at(context.timeline, cuts)),
                fix="Use layers that save nothing they do not need, such as those of `memsave_torch`, or train what "
                "comes last instead, so that no gradient has to pass."
                if convolves
                else "Use `torchvision.ops.FrozenBatchNorm2d`, or fold the normalisation into the convolution before "
                "it.",
            )


def _line_of_most(trace: Trace, group: list[Node]) -> Frame | None:
    """Return the line whose layers keep most."""
    kept: defaultdict[Frame | None, int] = defaultdict(int)
    for node in group:
        kept[node.frame] += trace.buffers[node.inputs[0].buffer].nbytes
    return max(kept, key=lambda frame: kept[frame])


def _updating(trace: Trace) -> frozenset[str]:
    """Return the modules that count their batches: normalisations in training mode."""
    return frozenset(
        node.module
        for node in trace.nodes
        if node.op == "aten.add_.Tensor" and node.step >= 0 and node.outputs[0].dtype == "int64"
    )


def _alone_needs_input(flow: Flow, node: Node) -> bool:
    """Return True if only this layer reads its input in backward."""
    taken = node.inputs[0].buffer
    if taken < 0 or flow.trace.buffers[taken].category is not Category.ACTIVATION:
        return False
    readers = [reader for reader in flow.readers(taken, node.index) if reader.phase is Phase.BACKWARD]
    return bool(readers) and all((r.op, r.module) == (_BACKWARD[node.op], node.module) for r in readers)


def _last_use_in_forward(flow: Flow, node: Node) -> int:
    """Return the Node after which only backward reads the input."""
    later = [r.index for r in flow.readers(node.inputs[0].buffer, node.index) if r.phase is Phase.FORWARD]
    return max(later, default=node.index)

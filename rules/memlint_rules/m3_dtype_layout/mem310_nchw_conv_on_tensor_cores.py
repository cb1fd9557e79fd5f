from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Finding, Findings, Severity, TraceRule, place_of
from memlint.memory.records import FORWARDS, Geometry, Node
from memlint.whatif.changes import ChannelsLast
from memlint_rules.support.flow import HALF

_CONVOLUTIONS = (
    "aten.convolution.",
    "aten._convolution.",
    "aten.cudnn_convolution.",
    "aten.cudnn_convolution_transpose.",
)


class NchwConvOnTensorCores(TraceRule):
    """Half-precision convolutions run in NCHW, which takes the same memory as channels_last and is slower.

    Counts the ungrouped 2-d convolutions in float16 or bfloat16 whose channel counts are multiples of 8 and whose input
    and weight both have the layout NCHW, on GPUs of compute capability 7.0 and later.

    ## Why it costs memory

    It does not: `torch.channels_last` changes the strides of a tensor, not its bytes. This rule is about speed.
    PyTorch's default layout is NCHW, tensor cores work on NHWC, and cuDNN transposes between them unless the tensors
    already are channels_last.

    ## How the saving is computed

    The step is traced again with model and inputs in channels_last, and the change of the peak is reported as it is:
    usually none, sometimes a rise, if an operation such as GroupNorm copies its input back to NCHW.

    ## Known limits

    The transposes and workspaces inside cuDNN are not counted. Grouped and depthwise convolutions can be slower in
    channels_last, which is why they are left out.

    - https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html
    - https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional/index.html
    """

    code, name, severity = "MEM310", "nchw-conv-on-tensor-cores", Severity.INFO
    bad = (
        Case.of_layers(
            {"conv": "nn.Conv2d(64, 128, 3)"},
            "return self.conv(x)",
            {"x": "torch.randn(2, 64, 32, 32)"},
            dtype="float16",
        ),
    )
    good = (
        bad[0].but(
            {
                'return Model(), {"x": torch.randn(2, 64, 32, 32)}': (
                    "model = Model().to(memory_format=torch.channels_last)\n"
                    '    return model, {"x": torch.randn(2, 64, 32, 32).to(memory_format=torch.channels_last)}'
                )
            }
        ),
    )

    def check(self, context: Context) -> Findings:
        """Yield one finding for the whole model, at its first such convolution."""
        if context.device.capability < (7, 0):
            return
        last_step = context.trace.num_steps - 1
        convolutions = [
            node
            for node in context.trace.nodes
            if node.step == last_step and node.phase in FORWARDS and _is_nchw_on_tensor_cores(node)
        ]
        if not convolutions:
            return
        answer = context.what_if(ChannelsLast())
        change = answer.peak_change if answer else 0
        effect = (
            "Every tensor keeps its bytes"
            if change == 0
            else f"The peak changes by {format_nbytes(change)}, because some operations copy to another layout"
        )
        first = convolutions[0]
        yield Finding(
            code=self.code,
            **place_of(first.frame, context),
            message=f"{len(convolutions)} {'convolution runs' if len(convolutions) == 1 else 'convolutions run'} in "
            f"{first.inputs[0].dtype} with NCHW strides, so cuDNN transposes around the tensor cores. {effect} in "
            "channels_last; it is faster, not smaller.",
            severity=self.severity,
            confidence=Confidence.EXACT_RETRACE if answer else Confidence.ANALYTIC,
            nbytes=0,
            peak_change=change,
            fix="Convert both: `model.to(memory_format=torch.channels_last)` and "
            "`x.to(memory_format=torch.channels_last)`.",
        )


def _is_nchw_on_tensor_cores(node: Node) -> bool:
    if not node.op.startswith(_CONVOLUTIONS) or len(node.inputs) < 2:
        return False
    image, weight = node.inputs[:2]
    if len(image.shape) != 4 or len(weight.shape) != 4 or image.dtype not in HALF:
        return False
    channels = image.shape[1]
    grouped = channels not in weight.shape[:2]
    return (
        not grouped
        and weight.shape[0] % 8 == 0
        and weight.shape[1] % 8 == 0
        and _is_contiguous(image, (0, 1, 2, 3))
        and not _is_contiguous(image, (0, 2, 3, 1))
        and not (_is_contiguous(weight, (0, 2, 3, 1)) and not _is_contiguous(weight, (0, 1, 2, 3)))
    )


def _is_contiguous(tensor: Geometry, order: tuple[int, ...]) -> bool:
    """Return True if the strides are those of a dense tensor with the dimensions in `order`, outermost first."""
    expected = 1
    for dimension in reversed(order):
        if tensor.shape[dimension] != 1 and tensor.stride[dimension] != expected:
            return False
        expected *= tensor.shape[dimension]
    return True

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import FORWARDS, Geometry, Node, Phase
from memlint.memory.timeline import without
from memlint_rules.support.flow import Flow, most_alive, numel, peak_change

_NORM = "aten.native_group_norm.default"
_COPIES = frozenset({"aten.clone.default", "aten.copy_.default"})


class ChannelsLastBroken(TraceRule):
    """GroupNorm copies channels_last activations to NCHW and continues in NCHW.

    Looks for GroupNorms whose input has channels_last strides, and for its copies to NCHW.

    ## Why it costs memory

    CUDA has no GroupNorm for channels_last: PyTorch copies the input to NCHW first, and for a moment both exist. The
    output is NCHW, so the speed-up of channels_last ends there, and the next convolution transposes again. The formats
    themselves take the same bytes.

    ## How the saving is computed

    The copies are removed, or their originals if nothing else needs them, and the peak is computed again. Keeping this
    part of the model in NCHW has that effect.

    ## Known limits

    Transposes inside cuDNN are not counted. Operations that return NCHW without copying their input are not reported.

    - https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html
    """

    code, name, severity = "MEM311", "channels-last-broken", Severity.INFO
    model = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(64, 64, 3, padding=1)
        self.norm = nn.GroupNorm(8, 64)
        self.second = nn.Conv2d(64, 64, 3, padding=1)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))
"""
    bad = (
        Case.of_model(
            model,
            "Model().to(memory_format=torch.channels_last), "
            '{"x": torch.randn(16, 64, 64, 64).to(memory_format=torch.channels_last)}',
            line=13,
        ),
    )
    good = (
        bad[0].but(
            {
                "Model().to(memory_format=torch.channels_last)": "Model()",
                "torch.randn(16, 64, 64, 64).to(memory_format=torch.channels_last)": "torch.randn(16, 64, 64, 64)",
            }
        ),
        bad[0].but({"nn.GroupNorm(8, 64)": "nn.BatchNorm2d(64)"}, title="BatchNorm has kernels for channels_last"),
    )

    def check(self, context: Context) -> Findings:
        """Yield one finding for the whole model, at its first such GroupNorm."""
        trace = context.trace
        if not context.device.is_cuda:
            return
        norms = [node for node in trace.nodes if node.op == _NORM and node.phase in FORWARDS]
        if not norms:
            return
        flow, timeline = Flow.of(trace), context.timeline
        needless = {node.index: copies for node in norms if (copies := _needless(flow, node))}
        if not needless:
            return
        nodes = [trace.nodes[index] for index in needless]
        removed = {buffer for copies in needless.values() for buffer in copies}
        nbytes = most_alive(timeline, removed)
        last_step = trace.num_steps - 1
        number = sum(node.step == last_step for node in nodes)
        yield self.finding(
            context,
            nodes[0].frame,
            f"{number} {'GroupNorm gets' if number == 1 else 'GroupNorms get'} channels_last activations: CUDA copies "
            f"them to NCHW, {format_nbytes(nbytes)} at one time, and what follows is NCHW.",
            nbytes=nbytes,
            peak_change=peak_change(timeline, without(timeline, removed)),
            fix="Keep this part of the model in NCHW, or normalise with BatchNorm, which has channels_last kernels.",
        )


def _is_channels_last(tensor: Geometry) -> bool:
    """Return True if a 4-d tensor has NHWC strides that are not NCHW strides as well."""
    if len(tensor.shape) != 4:
        return False
    _, channels, height, width = tensor.shape
    return channels > 1 and height * width > 1 and tensor.stride[1:] == (1, width * channels, channels)


def _needless(flow: Flow, norm: Node) -> set[int]:
    """Return Buffers that exist because the input of `norm`, or the tensor that it copies, is channels_last."""
    source = norm.inputs[0]
    if not _is_channels_last(source):
        copy = flow.writer(source.buffer, norm.index)
        if copy is None or copy.op not in _COPIES or not _is_channels_last(copy.inputs[0]):
            return set()
        uncopied = copy.inputs[0].buffer
        return {uncopied if flow.trace.buffers[uncopied].last_used == copy.index else source.buffer}
    return {
        reader.outputs[0].buffer
        for reader in flow.readers(source.buffer, norm.index)
        if reader.op in _COPIES and reader.phase is Phase.BACKWARD and numel(reader.outputs[0]) == numel(source)
    }

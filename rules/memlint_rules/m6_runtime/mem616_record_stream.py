from dataclasses import replace

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.estimate import estimate


class RecordStream(TraceRule):
    """Memory of tensors recorded with `Tensor.record_stream` is reused late, at an unpredictable time.

    Looks for steps in which tensors are recorded on another stream, and reports by how much this may raise the reserved
    bytes.

    ## Why it costs memory

    The allocator reuses such a tensor's memory only when it sees that the other stream has finished with it. A host
    that runs ahead of the GPU requests more memory in the meantime. A tensor that lives until its own stream has waited
    for the other one needs no `record_stream`.

    ## How the saving is computed

    Reserved bytes are computed twice: with every recorded tensor allocated until the program waits for the other
    stream, and without the recordings; the difference is the most that they can cost.

    ## Known limits

    The real effect depends on timing. The first version of FSDP records its tensors itself: its rate limiter
    (`limit_all_gathers`) bounds the effect, and `fully_shard` does not record at all.

    - https://docs.pytorch.org/docs/stable/generated/torch.Tensor.record_stream.html
    - https://github.com/pytorch/pytorch/issues/114299
    """

    code, name, severity = "MEM616", "record-stream", Severity.INFO
    _model = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1024, 1024)
        self.side = torch.cuda.Stream()

    def forward(self, x):
        for _ in range(8):
            y = x * 2
            with torch.cuda.stream(self.side):
                self.sum = y.sum()
            RECORD
            del y
        return self.layer(x)
"""
    bad = (
        Case.of_model(
            _model.replace("RECORD", "y.record_stream(self.side)"), 'Model(), {"x": torch.randn(16384, 1024)}'
        ),
    )
    good = (
        bad[0].but({"y.record_stream(self.side)": "torch.cuda.current_stream().wait_stream(self.side)"}),
        bad[0].but({"16384": "16"}, title="Few bytes"),
    )

    def check(self, context: Context) -> Findings:
        timeline = context.timeline
        held = timeline.streams.held
        if not held:
            return
        unheld = replace(timeline, streams=timeline.streams._replace(held={}))
        without = estimate(unheld, context.device, context.trace.nodes).reserved.high
        fall = without - estimate(timeline, context.device, context.trace.nodes).reserved.high
        if not is_notable(fall, context.estimate.reserved.estimate):
            return
        largest = max((timeline.buffers[buffer] for buffer in held), key=lambda buffer: buffer.nbytes)
        yield self.finding(
            context,
            largest.frame,
            f"{len(held)} tensors were recorded on another stream, the largest of {format_nbytes(largest.nbytes)}: "
            f"with a GPU that is behind, reserved memory may be {format_nbytes(-fall)} more.",
            nbytes=-fall,
            peak_change=fall,
            confidence=Confidence.MODELLED,
            measure="reserved",
            fix="Let the current stream wait for the other one before the tensor goes, in place of `record_stream`.",
        )

from dataclasses import replace

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.estimate import estimate
from memlint.memory.records import CUDA_GRAPHS


class CudaGraphPool(TraceRule):
    """CUDA graphs of compiled code keep a pool, whose memory the rest of the step cannot reuse.

    Looks for compiled code in CUDA graphs (`mode="reduce-overhead"` or `"max-autotune"`), and reports by how much their
    pool raises the reserved bytes.

    ## Why it costs memory

    A recorded graph writes to fixed addresses, so PyTorch keeps the segments that it was recorded in for its replays.
    What the graphs do not use at the moment stays reserved: the optimizer's temporaries and an eager loss need
    segments of their own beside it.

    ## How the saving is computed

    Reserved bytes are computed twice: with the memory of compiled code in a pool of its own, and in the same segments
    as everything else. Copies of inputs, which graphs need as well, are in both.

    ## Known limits

    That graphs keep a pool is read off PyTorch's source, and was not measured on a GPU. Without graphs every kernel is
    launched by itself again, which takes time where kernels are short.

    - https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html
    """

    code, name, severity = "MEM623", "cuda-graph-pool", Severity.INFO
    _model = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(2048, 8192), nn.Linear(8192, 2048)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))
"""
    bad = (Case.of_model(_model, 'torch.compile(Model(), mode="reduce-overhead"), {"x": torch.randn(8192, 2048)}'),)
    good = (
        bad[0].but({', mode="reduce-overhead"': ""}),
        bad[0].but({"8192, 2048)}": "16, 2048)}"}, title="Few bytes"),
    )

    def check(self, context: Context) -> Findings:
        timeline = context.timeline
        own = timeline.streams.own
        pooled = [buffer for buffer, stream in own.items() if stream == CUDA_GRAPHS]
        if not pooled:
            return
        others = {buffer: stream for buffer, stream in own.items() if stream != CUDA_GRAPHS}
        shared = replace(timeline, streams=timeline.streams._replace(own=others))
        without = estimate(shared, context.device, context.trace.nodes).reserved.estimate
        fall = without - context.estimate.reserved.estimate
        if not is_notable(fall, context.estimate.reserved.estimate):
            return
        largest = max((timeline.buffers[buffer] for buffer in pooled), key=lambda buffer: buffer.nbytes)
        yield self.finding(
            context,
            largest.frame,
            "CUDA graphs keep what compiled code takes in a pool of their own: reserved memory is "
            f"{format_nbytes(-fall)} more than where everything shares its segments.",
            nbytes=-fall,
            peak_change=fall,
            confidence=Confidence.MODELLED,
            measure="reserved",
            fix='Compile without CUDA graphs where memory is short: mode="default", or "max-autotune-no-cudagraphs".',
        )

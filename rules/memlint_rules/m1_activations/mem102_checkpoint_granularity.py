from bisect import bisect_right
from typing import NamedTuple, TypeAlias

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import Frame, Node, Phase, Trace
from memlint.memory.repeated_modules import repeated
from memlint.memory.timeline import alive_at, peak_event
from memlint.whatif.changes import CheckpointInstead
from memlint_rules.support.flow import grouped

MIN_SHARE = 0.6
"""Minimum share of the model's kernels that one checkpoint runs again."""
MIN_KERNELS = 4


class CheckpointGranularity(TraceRule):
    """One activation checkpoint holds most of the model and lowers the peak little.

    Looks in backward for kernels of the forward, which a checkpoint runs again, and counts how many run in forward
    order without a backward kernel in between. If they are more than 60 % of the forward's kernels, one checkpoint
    holds most of the model.

    ## Why it costs memory

    A checkpoint keeps its input and recomputes everything inside it at once when backward reaches it. Around the whole
    model this happens at the very start of backward, and as much is alive as without a checkpoint: it costs the time
    and does not lower the peak. Around each block, the activations of only one block exist at a time.

    ## How the saving is computed

    The step is traced again with each of the repeated blocks under a checkpoint, without the program's own checkpoints.

    ## Known limits

    Models without at least three blocks of one class are not reported. Checkpoints that hold too little are not found.

    - https://docs.pytorch.org/docs/stable/checkpoint.html
    - https://arxiv.org/abs/1604.06174
    """

    code, name, severity = "MEM102", "checkpoint-granularity", Severity.WARNING
    model = """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(8))

    def run(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x):
        return checkpoint(self.run, x, use_reentrant=False)
"""
    example = Case.of_model(
        model, 'Model(), {"x": torch.randn(16, 512, 256)}', imports="from torch.utils.checkpoint import checkpoint\n"
    )
    bad = (
        example,
        example.but(
            {"self.run, x, use_reentrant=False": "self.run, x.requires_grad_(), use_reentrant=True"},
            title="A reentrant checkpoint",
        ),
    )
    good = (
        example.but(
            {
                "x = block(x)": "x = checkpoint(block, x, use_reentrant=False)",
                "return checkpoint(self.run, x, use_reentrant=False)": "return self.run(x)",
            }
        ),
        example.but(
            {"return checkpoint(self.run, x, use_reentrant=False)": "return self.run(x)"},
            title="No checkpoint at all is MEM101's",
        ),
        Case.of_model(
            """\
class Coupled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, block):
        with torch.no_grad():
            b = b + block(a)
        ctx.block = block
        ctx.save_for_backward(a, b)
        return a.clone(), b

    @staticmethod
    def backward(ctx, da, db):
        a = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.block(a)
        y.backward(db)
        return da + a.grad, db, None


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(256, 256)

    def forward(self, x):
        y = self.linear(x) + 1
        return y * y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 256)
        self.blocks = nn.ModuleList(nn.Sequential(*(Layer() for _ in range(4))) for _ in range(4))

    def forward(self, x):
        a = b = self.first(x)
        for block in self.blocks:
            b, a = Coupled.apply(a, b, block)
        return a + b
""",
            'Model(), {"x": torch.randn(16, 512, 256)}',
            title="A reversible network runs one block after the other again",
        ),
    )

    def check(self, context: Context) -> Findings:
        trace, estimate = context.trace, context.estimate
        if context.workload.mode != "train" or estimate.phase is Phase.OPTIMIZER:
            return
        region = _largest_region(trace, trace.nodes[estimate.peak_node].step if estimate.peak_node >= 0 else -1)
        groups = list(repeated(trace.modules))
        if region is None or region.share <= MIN_SHARE or not groups:
            return
        answer = context.what_if(CheckpointInstead(max(groups, key=len)))
        if answer is None or answer.peak_change >= 0:
            return
        blocks = max(groups, key=len)
        again = [
            buffer
            for buffer in alive_at(context.timeline, peak_event(context.timeline))
            if region.first <= buffer.node <= region.last
        ]
        nbytes = sum(buffer.nbytes for buffer in again)
        yield self.finding(
            context,
            trace.nodes[region.first].frame,
            f"One checkpoint runs {region.share:.0%} of the forward again at once in backward."
            + (f" {format_nbytes(nbytes)} of the recomputed tensors are alive at the peak." if nbytes else ""),
            nbytes=nbytes,
            peak_change=answer.peak_change,
            confidence=Confidence.EXACT_RETRACE,
            fix=f"Checkpoint each of the {len(blocks)} `{dict(trace.modules)[blocks[0]]}` modules, not what is around "
            "them: `for block in blocks: x = checkpoint(block, x, use_reentrant=False)`.",
        )


class _Region(NamedTuple):
    """Consecutive kernels of the forward that run again in backward; `first` and `last` are Nodes."""

    first: int
    last: int
    share: float
    """Their share of the kernels in that step's forward."""


def _largest_region(trace: Trace, number: int) -> _Region | None:
    """Return the longest run of that step without a backward kernel in between; None if little runs again."""
    step = [node for node in trace.nodes if node.step == number]
    backward = {_stem(node) for node in step if "_backward" in node.op}
    forward = [node for node in step if node.phase is Phase.FORWARD]
    again = [node.op for node in forward if _stem(node) in backward | _ONLY_FORWARD]
    places = grouped((_call(node), place) for place, node in enumerate(forward))
    runs: list[list[Node]] = [[]]
    reached = -1  # share of the forward that this run covers
    for node in step:
        if node.phase is not Phase.BACKWARD:
            continue
        same = places.get(_call(node), [])
        following = bisect_right(same, reached)
        if following == len(same):  # not the forward's next kernel: another run begins, if any
            runs.append([])
            following = 0
        reached = same[following] if same else -1
        if same and node.op in again:
            runs[-1].append(node)
    longest = max(runs, key=len)
    if len(longest) < MIN_KERNELS:
        return None
    return _Region(longest[0].index, longest[-1].index, len(longest) / len(again))


_Call: TypeAlias = "tuple[str, Frame | None, tuple[tuple[int, ...], ...]]"


def _call(node: Node) -> _Call:
    """Return the properties that a forward kernel shares with its repetition: kernel, line and shapes."""
    return node.op, node.frame, tuple(geometry.shape for geometry in node.outputs)


_ONLY_FORWARD = frozenset({"aten.addmm"})
"""Forward kernels that do not occur in their own backward, which consists of other kernels."""


def _stem(node: Node) -> str:
    """Return the name that a forward kernel shares with its backward: `aten.gelu`."""
    return node.op.rpartition(".")[0].partition("_backward")[0]

from collections.abc import Iterable, Mapping, Sequence

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Buffer, Category, Phase
from memlint.memory.timeline import alive_at, live, without
from memlint_rules.support.dead_references import biggest_of, nbytes_of
from memlint_rules.support.flow import HALF, Flow


class AutocastCacheKept(TraceRule):
    """Autocast keeps a copy of every weight in half precision although no backward will read it.

    Looks in forwards without a backward under `torch.autocast` for casts of whole parameters that are alive at the
    peak, and reports the peak if each cast were freed after its use.

    ## Why it costs memory

    Autocast casts a weight once and keeps the copy until the outermost autocast ends, so that the next use needs no
    cast: the copies take half the bytes of all float32 weights. A backward needs these copies anyway; under
    `torch.no_grad()` they only save the cast when a weight is used again.

    ## How the saving is computed

    The peak is computed again with copies that live only while a kernel reads them.

    ## Known limits

    If weights are used many times under one autocast, as in generation, each use casts them anew. Under
    `torch.inference_mode()` nothing is kept in the first place.

    - https://docs.pytorch.org/docs/stable/amp.html
    - https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html
    """

    code, name, severity = "MEM314", "autocast-cache-kept", Severity.INFO
    bad = (
        Case.of_layers(
            {"layers": "nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8)))"},
            """\
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    return self.layers(x)""",
            {"x": "torch.randn(64, 2048)"},
        ).but({"def memlint_workload": 'import memlint\n\n\n@memlint.workload(mode="inference")\ndef encoder'}),
    )
    good = (
        bad[0].but(
            {
                'torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16)': (
                    'torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False)'
                )
            }
        ),
        bad[0].but({"torch.no_grad(),": "torch.inference_mode(),"}, title="In inference mode"),
    )

    def check(self, context: Context) -> Findings:
        """Yield at most one finding, for all weights."""
        timeline, peak = context.timeline, context.estimate
        casts = [each for each in timeline.buffers if _is_cast_without_backward(context, each)]
        flow = Flow.of(context.trace) if casts else None
        if flow is None:
            return
        uses = {each.id: [node.index for node in flow.readers(each.id, each.node)] for each in casts}
        alive = alive_at(timeline, peak.peak_event)
        idle = [each for each in alive if peak.peak_node not in uses.get(each.id, [peak.peak_node])]
        if not is_notable(-nbytes_of(idle), peak.requested.estimate):
            return
        fall = _peak_without_cache(context, casts, uses) - max(live(timeline))
        if not is_notable(fall, peak.requested.estimate):
            return
        biggest = biggest_of(idle)
        yield self.finding(
            context,
            biggest.frame,
            f"Autocast keeps its casts of weights until it ends: {len(idle)} copies in {biggest.dtype} of "
            f"{format_nbytes(nbytes_of(idle))} are unused at the peak.",
            nbytes=nbytes_of(idle),
            peak_change=fall,
            confidence=Confidence.EXACT_LIFETIME,
            fix="Run it under `torch.inference_mode()`, give `torch.autocast` `cache_enabled=False`, or keep the model "
            "in this dtype, which also halves its weights.",
        )


def _is_cast_without_backward(context: Context, buffer: Buffer) -> bool:
    """Return True for the cast of a whole parameter in a forward without autograd."""
    nodes, buffers = context.trace.nodes, context.trace.buffers
    if buffer.dtype not in HALF or buffer.node < 0:
        return False
    node = nodes[buffer.node]
    is_inference = node.phase is Phase.EVALUATION or context.workload.mode != "train"
    if not is_inference or node.op != "aten._to_copy.default" or node.inputs[0].buffer < 0:
        return False
    source = buffers[node.inputs[0].buffer]
    return source.category is Category.PARAMETER and source.shape == buffer.shape


def _peak_without_cache(context: Context, casts: Iterable[Buffer], uses: Mapping[int, Sequence[int]]) -> int:
    """Return the requested peak if each cast were made for each kernel that reads it, and freed after the kernel."""
    timeline, nodes = context.timeline, context.trace.nodes
    starts = [*(node.event for node in nodes), len(timeline.events)]
    nbytes = [0, *live(without(timeline, [each.id for each in casts]))]  # before each event, and after the last
    for cast in casts:
        first, *later = uses[cast.id] or [cast.node]
        for begin, use in ((cast.born + 1, first), *((starts[node], node) for node in later)):
            opened = (at + 1 for at in range(starts[use], starts[use + 1]) if timeline.events[at] >= 0)
            for position in range(begin, max(opened, default=starts[use]) + 1):
                nbytes[position] += cast.nbytes
    return max(nbytes)

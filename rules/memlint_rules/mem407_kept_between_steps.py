"""MEM407: attributes and globals that keep tensors of an earlier forward."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.liveness import Origin, dead_at, held, origin
from memlint.memory.retention import Keeper
from memlint.memory.timeline import Timeline, end_at, live, peak_event
from memlint.tracing.records import Buffer, Category
from memlint_rules.growth import place

MIN_NBYTES = 2**20
"""Smaller storages, such as losses and counters, are not worth a word."""

_KEPT_ON_PURPOSE = frozenset({Category.INPUT, Category.GRADIENT})


class KeptBetweenSteps(TraceRule):
    """Something that outlives the step keeps a tensor at the peak that nothing reads again.

    ## What it does

    Looks at the moment of the peak for storages whose last kernel has run, and which an attribute of a module, a global
    variable or a variable around the step keeps, until the next step binds it again.

    ## Why it costs memory

    What `forward` stores in `self` stays through backward and optimizer step, and through the next forward up to the
    line that stores there again. A loop that keeps the last output does the same.

    ## How the saving is computed

    The lifetime of each such storage is cut right after its last use, in every step, and the peak is computed again.
    Which variable it is, is found in a run of four steps.

    ## Known limits

    Variables of functions that are active at the peak are reported by MEM107, and what every step adds by MEM401,
    MEM402 and MEM405. A tensor that is read only after the step is reported: copy what is needed of it to the host.
    Inputs, gradients and storages below 1 MiB are left out.

    ## References

    - https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory
    """

    code = "MEM407"
    name = "kept-between-steps"
    summary = "An attribute or a global keeps a tensor of an earlier forward alive at the peak."
    severity = Severity.WARNING
    looks_at = "the lifetimes in a traced step"
    model = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(512, 16384)
        self.second = nn.Linear(16384, 512)
        self.hidden = None

    def forward(self, x):
        hidden = self.first(x)
        self.hidden = hidden.detach()
        return self.second(hidden.relu())
"""
    bad = (Case.of_model(model, 'Model(), {"x": torch.randn(1024, 512)}', line=14),)
    good = (
        bad[0].but({"        self.hidden = None\n": "", "        self.hidden = hidden.detach()\n": ""}),
        bad[0].but(
            {
                "self.hidden = None": "self.mean = None",
                "self.hidden = hidden.detach()": "self.mean = hidden.detach().mean(0)",
            },
            title="Only what is needed of it",
        ),
    )

    def check(self, context: Context) -> Findings:
        """Yield one finding per variable, biggest first."""
        timeline = context.timeline
        dead = _dead_at_peak(timeline, context)
        surviving = _surviving(timeline)
        if not any(origin(each) in surviving for each in dead):
            return
        holders = context.holders([each.id for each in dead])
        left = [each for each in dead if each.id not in holders and origin(each) in surviving]
        if not left:
            return
        keepers = _keepers(context)
        groups: defaultdict[str, list[Buffer]] = defaultdict(list)
        for each in left:
            if origin(each) in keepers:
                groups[keepers[origin(each)].name].append(each)
        everything_held = held(context.trace)
        peak = max(live(timeline))
        for name, group in sorted(groups.items(), key=lambda item: -_nbytes(item[1])):
            origins = {origin(each) for each in group}
            cuts = {each.id: each.last_used for each in everything_held if origin(each) in origins}
            biggest = max(group, key=lambda buffer: buffer.nbytes)
            keeper = keepers[origin(biggest)]
            made = f", made at {Path(biggest.frame.path).name}:{biggest.frame.line}" if biggest.frame else ""
            yield self.finding(
                context,
                place(keeper, tuple(group)),
                f"`{name}` outlives the step and keeps {format_nbytes(_nbytes(group))} alive at the peak that nothing "
                f"reads again ({biggest.dtype} {list(biggest.shape)}{made}).",
                nbytes=_nbytes(group),
                peak_change=max(live(end_at(timeline, cuts))) - peak,
                confidence=Confidence.EXACT_LIFETIME,
                fix=f"Keep only what is needed of it, on the host, or set `{name}` to None after its last use.",
            )


def _dead_at_peak(timeline: Timeline, context: Context) -> list[Buffer]:
    if not timeline.events:
        return []
    return [
        each
        for each in dead_at(context.trace, peak_event(timeline))
        if each.category not in _KEPT_ON_PURPOSE and each.nbytes >= MIN_NBYTES
    ]


def _surviving(timeline: Timeline) -> set[Origin]:
    """Origins of what the first step made and the second let go of; what it keeps for good is growth."""
    second = timeline.step_nodes[1] if timeline.num_steps > 1 else 0
    return {
        origin(buffer)
        for buffer in timeline.buffers
        if buffer.step == 0 and buffer.died is not None and timeline.event_nodes[buffer.died] >= second > 0
    }


def _keepers(context: Context) -> dict[Origin, Keeper]:
    """Which long-lived variable keeps a Buffer of each origin after the last step."""
    run = context.long_run
    return {origin(run.timeline.buffers[number]): keeper for number, keeper in run.keepers.items()}


def _nbytes(group: list[Buffer]) -> int:
    return sum(each.nbytes for each in group)

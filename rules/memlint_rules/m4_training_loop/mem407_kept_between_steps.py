from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.liveness import Origin, origin
from memlint.memory.retention import Keeper
from memlint.memory.timeline import Timeline
from memlint_rules.support.dead_references import biggest_of, change_without, dead_at_peak, described, nbytes_of
from memlint_rules.support.flow import grouped
from memlint_rules.support.growth import place


class KeptBetweenSteps(TraceRule):
    """An attribute or a global variable keeps a tensor of an earlier forward alive at the peak.

    Looks at the peak for storages whose last kernel has run and that an attribute of a module, a global variable or a
    variable around the step keeps until the next step binds it again.

    ## Why it costs memory

    A tensor that `forward` stores in `self` stays through backward and the optimizer step, and through the next forward
    up to the line that stores there again. A loop that keeps the last output does the same.

    ## How the saving is computed

    The lifetime of each such storage is cut off right after its last use, in every step, and the peak is computed
    again. A run of four steps finds the variable.

    ## Known limits

    Variables of functions that are active at the peak are reported by MEM107, and tensors that every step adds by
    MEM401, MEM402 and MEM405. A tensor that is read only after the step is reported: copy the part that is needed to
    the host. Inputs, gradients and storages below 1 MiB are left out.

    - https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory
    """

    code, name, severity = "MEM407", "kept-between-steps", Severity.WARNING
    looks_at = "the lifetimes in a traced step"
    bad = (
        Case.of_layers(
            {"first": "nn.Linear(512, 16384)", "second": "nn.Linear(16384, 512)", "hidden": "None"},
            """\
hidden = self.first(x)
self.hidden = hidden.detach()
return self.second(hidden.relu())""",
            {"x": "torch.randn(1024, 512)"},
            line=14,
        ),
    )
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
        """Yield one finding per variable, largest first."""
        surviving = _surviving(context.timeline)
        dead = dead_at_peak(context)
        if not any(origin(each) in surviving for each in dead):
            return
        holders = context.holders([each.id for each in dead])
        left = [each for each in dead if each.id not in holders and origin(each) in surviving]
        keepers = _keepers(context) if left else {}
        groups = grouped((keepers[origin(each)].name, each) for each in left if origin(each) in keepers)
        for name, group in sorted(groups.items(), key=lambda item: -nbytes_of(item[1])):
            biggest = biggest_of(group)
            yield self.finding(
                context,
                place(keepers[origin(biggest)], tuple(group)),
                f"`{name}` outlives the step and keeps {format_nbytes(nbytes_of(group))} alive at the peak that "
                f"nothing reads again ({described(biggest)}).",
                nbytes=nbytes_of(group),
                peak_change=change_without(context, group),
                confidence=Confidence.EXACT_LIFETIME,
                fix=f"Keep only the needed part, on the host, or set `{name}` to None after its last use.",
            )


def _surviving(timeline: Timeline) -> set[Origin]:
    """Return origins of Buffers that the first step made and the second freed; those kept for good are growth."""
    second = timeline.step_nodes[1] if timeline.num_steps > 1 else 0
    return {
        origin(buffer)
        for buffer in timeline.buffers
        if buffer.step == 0 and buffer.died is not None and timeline.event_nodes[buffer.died] >= second > 0
    }


def _keepers(context: Context) -> dict[Origin, Keeper]:
    """Return the long-lived variable that keeps a Buffer of each origin after the last step."""
    run = context.long_run
    return {origin(run.timeline.buffers[number]): keeper for number, keeper in run.keepers.items()}

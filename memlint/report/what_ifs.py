"""Simulated Changes and plans as the Report says them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.report import model as report
from memlint.whatif.change import Names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memlint.memory.liveness import Origin
    from memlint.tracing.records import Trace
    from memlint.whatif.change import Change
    from memlint.whatif.plan import Plan
    from memlint.whatif.simulation import WhatIf


def alone(answers: Sequence[WhatIf], trace: Trace) -> list[report.Change]:
    """Changes that were simulated by themselves, by kind, the lowest peak of each first; `trace` is without them."""
    single = [answer for answer in answers if len(answer.changes) == 1]
    changes = [_change(answer.changes[0], answer, trace, {}) for answer in single]
    return sorted(changes, key=lambda change: (change.kind, change.peak.requested.estimate, change.text))


def plan(found: Plan, limit_name: str, trace: Trace) -> report.Plan:
    """A plan; `trace` is of the program as it is."""
    return report.Plan(
        limit=found.limit,
        limit_name=limit_name,
        measure=found.measure,
        met=found.met,
        changes=[_change(step.change, step.after, trace, found.variables) for step in found.steps],
        num_traces=found.num_traces,
    )


def _change(change: Change, after: WhatIf, trace: Trace, variables: Mapping[Origin, str]) -> report.Change:
    peak = after.estimate
    intervals = {
        name: report.Interval(low=interval.low, estimate=interval.estimate, high=interval.high)
        for name in ("requested", "allocated", "reserved", "device")
        for interval in (getattr(peak, name),)
    }
    return report.Change(
        kind=type(change).__name__,
        text=change.describe(Names(trace.modules, variables)),
        effect=change.effect_in(trace).value,
        peak=report.Peak(**intervals),
        peak_change=after.peak_change,
        phase=peak.phase.value,
        op=peak.op,
        path=peak.frame.path if peak.frame else None,
        line=peak.frame.line if peak.frame else None,
        module=peak.module,
        recompute_flops=after.recompute_flops,
        recompute_share=round(after.recompute_flops / after.step_flops, 4) if after.step_flops else 0.0,
    )

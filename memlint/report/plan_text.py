"""Simulated Changes and plans as text."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from memlint.base.units import format_nbytes
from memlint.report.layout import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.report.layout import Paint
    from memlint.report.model import Change, Estimate, Plan

_EFFECT_COLORS = {"exact": "green", "numerics": "yellow", "dynamics": "red"}


def plan_lines(plan: Plan, estimate: Estimate, paint: Paint) -> Iterator[str]:
    """The peak as it is, after each Change, and whether the limit holds then."""
    name = f"{plan.limit_name} of {format_nbytes(plan.limit)}"
    now = getattr(estimate.peak, plan.measure)
    if plan.met and not plan.changes:
        yield f"{paint('  Plan', bold=True)}: nothing to change, the {name} is kept ({format_nbytes(now.high)} at most)"
        return
    yield f"{paint(f'  Plan for the {name}', bold=True)}, {plan.measure} peak after each change"
    rows = [("  ", "as it is", paint(format_nbytes(now.estimate), bold=True), _place(estimate), "")]
    for number, change in enumerate(plan.changes, 1):
        peak = getattr(change.peak, plan.measure).estimate
        rows.append(
            (f"  {number}.", change.text, paint(format_nbytes(peak), bold=True), _place(change), _cost(change, paint))
        )
    yield from table(rows, ("right", "left", "right", "left", "left"))
    last = getattr(plan.changes[-1].peak, plan.measure) if plan.changes else now
    doubt = f" ({format_nbytes(last.high)} at most)" if last.high != last.estimate else ""
    if plan.met:
        kept = paint("kept", "green", bold=True)
        yield f"  With all of them the {name} is {kept}: {format_nbytes(last.estimate)}{doubt}."
    else:
        over = format_nbytes(last.high - plan.limit)
        best = "This is the best that was found" if plan.changes else "No change was found that lowers the peak"
        if last.estimate <= plan.limit:
            missed = f"{paint('may be exceeded', 'yellow', bold=True)}, by up to {over}"
        else:
            missed = f"is {paint('not met', 'red', bold=True)}, up to {over} too much"
        yield f"  {best}: the {name} {missed}{doubt}."


def what_if_lines(changes: list[Change], estimate: Estimate, paint: Paint) -> Iterator[str]:
    """Each Change by itself: its requested peak, the difference, and what it costs."""
    if not changes:
        return
    yield ""
    yield paint("  What if: requested peak with one change alone", bold=True)
    now = estimate.peak.requested.estimate
    rows = [
        (
            f"  {format_nbytes(change.peak.requested.estimate)}",
            f"{'-' if change.peak_change < 0 else '+'}{format_nbytes(abs(change.peak_change))}",
            change.text,
            _cost(change, paint),
        )
        for change in changes
    ]
    yield from table([(f"  {format_nbytes(now)}", "", "as it is", ""), *rows], ("right", "right", "left", "left"))


def _place(change: Change | Estimate) -> str:
    """Where the peak is."""
    line = f"{PurePath(change.path).name}:{change.line}" if change.path else ""
    return ", ".join(part for part in (change.phase, line or change.op) if part)


def _cost(change: Change, paint: Paint) -> str:
    effect = paint(change.effect, _EFFECT_COLORS[change.effect])
    return f"{effect}, {change.recompute_share:.0%} more FLOPs" if change.recompute_share >= 0.005 else effect

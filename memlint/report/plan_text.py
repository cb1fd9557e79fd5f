"""Simulated Changes and plans as text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from memlint.base.units import format_nbytes
from memlint.report.model import Change, Estimate, Plan
from memlint.report.phrases import cost, listed, signed
from memlint.report.text_style import EFFECT_COLORS, TextStyle, table


def plan_lines(plan: Plan, estimate: Estimate, paint: TextStyle) -> Iterator[str]:
    """The peak as it is, after each Change, and whether the limit holds then."""
    name = f"{plan.limit_name} of {format_nbytes(plan.limit)}"
    now = estimate.peak[plan.measure]
    if plan.met and not plan.changes:
        yield f"{paint('  Plan', bold=True)}: nothing to change, the {name} is kept ({format_nbytes(now.high)} at most)"
        return
    yield f"{paint(f'  Plan for the {name}', bold=True)}, {plan.measure} peak after each change"
    steps: list[tuple[str, str, Change | Estimate, str]] = [("", "as it is", estimate, "")]
    steps += [(f"{number}.", each.text, each, _cost(each, paint)) for number, each in enumerate(plan.changes, 1)]
    rows = [
        (f"  {number}", text, paint(format_nbytes(at.peak[plan.measure].estimate), bold=True), _place(at), price)
        for number, text, at, price in steps
    ]
    yield from table(rows, ("right", "left", "right", "left", "left"))
    last = steps[-1][2].peak[plan.measure]
    doubt = f" ({format_nbytes(last.high)} at most)" if last.high != last.estimate else ""
    yield f"  {_verdict(plan, name, last.estimate, last.high, paint)}{doubt}."
    for number, change in enumerate(plan.changes, 1):
        if change.snippet:
            yield from ("", f"  Change {number}, made on `model`:", "")
            yield from (f"    {line}".rstrip() for line in change.snippet)


def _verdict(plan: Plan, name: str, nbytes: int, high: int, paint: TextStyle) -> str:
    """Whether the limit holds after the last Change."""
    if plan.met:
        kept = paint("kept", "green", bold=True)
        return f"With all of them the {name} is {kept}: {format_nbytes(nbytes)}"
    over = format_nbytes(high - plan.limit)
    best = "This is the best that was found" if plan.changes else "No change was found that lowers the peak"
    if nbytes <= plan.limit:
        return f"{best}: the {name} {paint('may be exceeded', 'yellow', bold=True)}, by up to {over}"
    return f"{best}: the {name} is {paint('not met', 'red', bold=True)}, up to {over} too much"


def what_if_lines(changes: list[Change], estimate: Estimate, paint: TextStyle) -> Iterator[str]:
    """Each Change by itself: its requested peak, the difference, and what it costs."""
    if not changes:
        return
    yield paint("  What if: requested peak with one change alone", bold=True)
    rows = [(f"  {format_nbytes(estimate.peak.requested.estimate)}", "", "as it is", "")]
    rows += [
        (
            f"  {format_nbytes(change.peak.requested.estimate)}",
            signed(change.peak_change),
            change.text,
            _cost(change, paint),
        )
        for change in changes
    ]
    yield from table(rows, ("right", "right", "left", "left"))


def _place(at: Change | Estimate) -> str:
    """Where the peak is."""
    return listed(at.phase, f"{PurePath(at.path).name}:{at.line}" if at.path else at.op)


def _cost(change: Change, paint: TextStyle) -> str:
    return cost(change, paint(change.effect, EFFECT_COLORS[change.effect]))

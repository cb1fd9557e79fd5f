"""What-if results of a Workload as text: with other batch sizes, with single Changes, and with a plan."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from memlint.base.units import format_nbytes
from memlint.report.model import Change, Estimate, Plan, Sweep, SweepRow
from memlint.report.phrases import cost, largest_batch, listed, signed
from memlint.report.text_style import EFFECT_COLORS, OUTCOME_COLORS, TextStyle, table

_SUFFIXES = {"fits": "", "does not fit": ", too much", "uncertain": ", perhaps"}


def sweep_lines(sweeps: Sequence[Sweep], paint: TextStyle) -> Iterator[str]:
    """Batch sizes and dtypes side by side, in device memory: lines for the sweeps of one Workload."""
    made = [sweep for sweep in sweeps if sweep.rows]
    if made:
        yield paint("  Batch sizes, device memory", bold=True)
        columns = [{row.batch: row for row in reversed(sweep.rows)} for sweep in made]
        batches = sorted({batch for column in columns for batch in column})
        rows = [("  batch", *(sweep.title for sweep in made))]
        rows += [(f"  {batch}", *(_cell(column.get(batch), paint) for column in columns)) for batch in batches]
        rows.append(("  largest that fits", *(largest_batch(sweep, if_partial="") for sweep in made)))
        yield from table(rows, ("right", *["left"] * len(made)))
    for sweep in sweeps:
        if sweep.error is not None or sweep.note is not None:
            reason = sweep.error or f"every batch was traced: {sweep.note}"
            yield f"  Batch sizes with {sweep.title}: {reason}." + (f" {sweep.hint}" if sweep.hint else "")


def _cell(row: SweepRow | None, paint: TextStyle) -> str:
    if row is None or row.device is None or row.outcome is None:
        return "rejected" if row is not None else ""
    color = None if row.outcome == "fits" else OUTCOME_COLORS[row.outcome]
    return paint(format_nbytes(row.device.estimate) + _SUFFIXES[row.outcome], color)


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
    """State whether the limit holds after the last Change."""
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
    """Describe the place of the peak."""
    return listed(at.phase, f"{PurePath(at.path).name}:{at.line}" if at.path else at.op)


def _cost(change: Change, paint: TextStyle) -> str:
    return cost(change, paint(change.effect, EFFECT_COLORS[change.effect]))

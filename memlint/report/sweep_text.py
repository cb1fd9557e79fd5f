"""Batch sizes and dtypes side by side, in device memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memlint.base.units import format_nbytes
from memlint.report.model import Sweep, SweepRow
from memlint.report.phrases import largest_batch
from memlint.report.text_style import OUTCOME_COLORS, TextStyle, table

_SUFFIXES = {"fits": "", "does not fit": ", too much", "uncertain": ", perhaps"}


def sweep_lines(sweeps: Sequence[Sweep], paint: TextStyle) -> Iterator[str]:
    """Lines for the sweeps of one Workload, one column for each dtype."""
    made = [sweep for sweep in sweeps if sweep.rows]
    if made:
        yield paint("  Batch sizes, device memory", bold=True)
        columns = [{row.batch: row for row in reversed(sweep.rows)} for sweep in made]
        batches = sorted({batch for column in columns for batch in column})
        rows = [("  batch", *(sweep.dtype for sweep in made))]
        rows += [(f"  {batch}", *(_cell(column.get(batch), paint) for column in columns)) for batch in batches]
        rows.append(("  largest that fits", *(largest_batch(sweep, if_partial="") for sweep in made)))
        yield from table(rows, ("right", *["left"] * len(made)))
    for sweep in sweeps:
        if sweep.error is not None or sweep.note is not None:
            reason = sweep.error or f"every batch was traced: {sweep.note}"
            yield f"  Batch sizes with {sweep.dtype}: {reason}." + (f" {sweep.hint}" if sweep.hint else "")


def _cell(row: SweepRow | None, paint: TextStyle) -> str:
    if row is None or row.device is None or row.outcome is None:
        return "rejected" if row is not None else ""
    color = None if row.outcome == "fits" else OUTCOME_COLORS[row.outcome]
    return paint(format_nbytes(row.device.estimate) + _SUFFIXES[row.outcome], color)

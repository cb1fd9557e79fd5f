"""Batch sizes and dtypes side by side, in device memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.base.units import format_nbytes
from memlint.report.layout import Paint, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memlint.report.model import Row, Sweep

_SAID = {"fits": "", "does not fit": ", too much", "uncertain": ", perhaps"}
_COLORS = {"fits": None, "does not fit": "red", "uncertain": "yellow"}


def sweep_lines(sweeps: Sequence[Sweep], paint: Paint) -> Iterator[str]:
    """Lines for the sweeps of one Workload, one column for each dtype."""
    made = [sweep for sweep in sweeps if sweep.rows]
    if made:
        yield paint("  Batch sizes, device memory", bold=True)
        batches = sorted({row.batch for sweep in made for row in sweep.rows})
        rows = [("  batch", *(sweep.dtype for sweep in made))]
        rows += [(f"  {batch}", *(_cell(_row(sweep, batch), paint) for sweep in made)) for batch in batches]
        rows.append(("  largest that fits", *(_largest(sweep) for sweep in made)))
        yield from table(rows, ("right", *["left"] * len(made)))
    for sweep in sweeps:
        if sweep.error is not None or sweep.note is not None:
            said = sweep.error or f"every batch was traced: {sweep.note}"
            yield f"  Batch sizes with {sweep.dtype}: {said}." + (f" {sweep.hint}" if sweep.hint else "")


def _row(sweep: Sweep, batch: int) -> Row | None:
    return next((row for row in sweep.rows if row.batch == batch), None)


def _cell(row: Row | None, paint: Paint) -> str:
    if row is None or row.device is None or row.outcome is None:
        return "rejected" if row is not None else ""
    return paint(format_nbytes(row.device.estimate) + _SAID[row.outcome], _COLORS[row.outcome])


def _largest(sweep: Sweep) -> str:
    if sweep.is_partial:
        return ""
    if sweep.largest is None:
        return "none"
    return str(sweep.largest.batch) if sweep.is_limit else f"{sweep.largest.batch} or more"

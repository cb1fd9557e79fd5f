"""A Table as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from tabulate import tabulate

from memlint.report.look import Paint, table
from memlint.units import format_nbytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.report.look import Look
    from memlint.scaling.records import Range, Row, Sweep, Table

_COLORS = {"fits": "green", "does not fit": "red", "uncertain": "yellow"}
_PEAKS = ("requested", "allocated", "reserved", "device")


def render(told: Table, form: str, look: Look) -> str:
    """`told` as `text`, `markdown`, `csv` or `json`."""
    if form == "json":
        return told.model_dump_json(indent=2) + "\n"
    if form == "csv":
        return _csv(told)
    return "\n".join(line for sweep in told.sweeps for line in _lines(sweep, look, markdown=form == "markdown"))


def _lines(sweep: Sweep, look: Look, *, markdown: bool) -> Iterator[str]:
    paint = Paint(look)
    step = "train step" if sweep.mode == "train" else "inference"
    optimizer = f", {sweep.optimizer}" if sweep.optimizer else ""
    title = f"{sweep.name} on {sweep.gpu_title} ({format_nbytes(sweep.gpu_nbytes)}): {step}, {sweep.dtype}{optimizer}"
    yield f"### {title}" if markdown else paint(title, bold=True)
    yield ""
    if sweep.error is None:
        heads = ("batch", *_PEAKS, "")
        rows = [_cells(row, paint) for row in sweep.rows]
        if markdown:
            yield tabulate(rows, heads, tablefmt="github", disable_numparse=True, colalign=("right",) * 5 + ("left",))
        else:
            yield from (f"  {line}" for line in table([heads, *rows], ("right",) * 5 + ("left",)))
        yield ""
    yield from (line if markdown else f"  {line}" for line in _said(sweep))
    yield ""


def _said(sweep: Sweep) -> Iterator[str]:
    if sweep.error is not None:
        return
    if sweep.largest is None:
        yield "None of these surely fits."
    else:
        device = sweep.largest.device
        said = f", with {_said_range(device)}" if device else ""
        yield f"The largest batch that fits is {sweep.largest.batch}{said}." + (
            "" if sweep.is_limit else " A larger one may."
        )
    ran = ", ".join(map(str, sweep.traced))
    if sweep.note is not None:
        yield f"Every batch was traced: {sweep.note}."
    else:
        yield f"Traced at {ran}; the others follow from these, kernel by kernel."


def _cells(row: Row, paint: Paint) -> tuple[str, ...]:
    if row.error is not None:
        return (str(row.batch), "", "", "", "", row.error)
    found = [getattr(row, name) for name in _PEAKS]
    cells = [format_nbytes(each.estimate) for each in found]
    outcome = row.outcome or ""
    return (str(row.batch), *cells, paint(outcome, _COLORS.get(outcome)))


def _said_range(peak: Range) -> str:
    if peak.low == peak.high:
        return format_nbytes(peak.estimate)
    return f"{format_nbytes(peak.estimate)} ({format_nbytes(peak.low)} to {format_nbytes(peak.high)})"


def _csv(told: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    bounds = [f"{name}_{bound}" for name in _PEAKS for bound in ("low", "estimate", "high")]
    writer.writerow(
        ["name", "gpu", "dtype", "mode", "optimizer", "batch", *bounds, "outcome", "evidence", "largest", "error"]
    )
    for sweep in told.sweeps:
        known = [sweep.name, sweep.gpu, sweep.dtype, sweep.mode, sweep.optimizer or ""]
        largest = sweep.largest.batch if sweep.largest else ""
        if sweep.error is not None:
            writer.writerow([*known, "", *[""] * len(bounds), "", "", "", sweep.error])
        for row in sweep.rows:
            values = [
                getattr(peak, bound) if (peak := getattr(row, name)) else ""
                for name in _PEAKS
                for bound in ("low", "estimate", "high")
            ]
            writer.writerow([*known, row.batch, *values, row.outcome or "", row.evidence, largest, row.error or ""])
    return text.getvalue()

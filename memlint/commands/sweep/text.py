"""A Table as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import itertools
from typing import TYPE_CHECKING

from tabulate import tabulate

from memlint.base.units import format_nbytes
from memlint.report.escaping import for_log
from memlint.report.text_style import TextStyle, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memlint.commands.sweep.records import Table
    from memlint.report.model import Interval, Row, Sweep
    from memlint.report.text_style import TextStyle

_COLORS = {"fits": "green", "does not fit": "red", "uncertain": "yellow"}
_PEAKS = ("requested", "allocated", "reserved", "device")
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BAR_WIDTH = 20
"""Columns that stand for all of the GPU."""


def render(told: Table, form: str, paint: TextStyle) -> str:
    """`told` as `text`, `markdown`, `csv` or `json`."""
    if form == "json":
        return told.model_dump_json(indent=2) + "\n"
    if form == "csv":
        return _csv(told)
    groups = [list(group) for _, group in itertools.groupby(for_log(told).sweeps, key=_what)]
    return "\n".join(line for group in groups for line in _lines(group, paint, markdown=form == "markdown"))


def _what(sweep: Sweep) -> tuple[object, ...]:
    """Sweeps that differ in the sizes of dimensions only stand in one table."""
    return sweep.name, sweep.target, sweep.mode, sweep.optimizer, sweep.dtype, sweep.gpu


def _lines(sweeps: Sequence[Sweep], paint: TextStyle, *, markdown: bool) -> Iterator[str]:
    first = sweeps[0]
    step = "train step" if first.mode == "train" else "inference"
    optimizer = f", {first.optimizer}" if first.optimizer else ""
    varied = [name for name in first.dimensions if len({each.dimensions.get(name) for each in sweeps}) > 1]
    fixed = "".join(f", {name} {size}" for name, size in first.dimensions.items() if name not in varied)
    gpu = f"{first.gpu_title} ({format_nbytes(first.gpu_nbytes)})" if first.gpu_nbytes else first.gpu_title
    title = f"{first.name} on {gpu}: {step}, {first.dtype}{optimizer}{fixed}"
    yield f"### {title}" if markdown else paint(title, bold=True)
    yield ""
    rows = [(sweep, row) for sweep in sweeps for row in sweep.rows]
    if rows:
        heads = (*varied, "batch", *_PEAKS, "")
        cells = [
            (*[str(sweep.dimensions[name]) for name in varied], *_cells(row, sweep, paint, bars=not markdown))
            for sweep, row in rows
        ]
        alignment = ("right",) * (len(heads) - 1) + ("left",)
        if markdown:
            yield tabulate(cells, heads, tablefmt="github", disable_numparse=True, colalign=alignment)
        else:
            yield from (f"  {line}" for line in table([heads, *cells], alignment))
        yield ""
    lines = _said(sweeps[0]) if len(sweeps) == 1 else _said_together(sweeps, varied)
    yield from (line if markdown else f"  {line}" for line in lines)
    yield ""


def _said(sweep: Sweep) -> Iterator[str]:
    if sweep.error is not None or all(row.error for row in sweep.rows):
        return
    if sweep.is_partial:
        yield _STOPPED
        return
    if sweep.largest is None:
        if sweep.gpu_nbytes:
            yield "None of these surely fits."
    else:
        device = sweep.largest.device
        said = f", with {_said_range(device)}" if device else ""
        more = "" if sweep.is_limit else " A larger one may."
        yield f"The largest batch that fits is {_largest(sweep)}{said}.{more}"
    if sweep.note is not None:
        yield f"Every batch was traced: {sweep.note}."
    else:
        yield f"Traced at {', '.join(map(str, sweep.traced))}; the others follow from these, kernel by kernel."


def _said_together(sweeps: Sequence[Sweep], varied: Sequence[str]) -> Iterator[str]:
    """The same for tables that differ in the sizes of dimensions."""
    if any(sweep.is_partial for sweep in sweeps):
        yield _STOPPED
    found = [(sweep, _at(sweep, varied)) for sweep in sweeps if not (sweep.is_partial or sweep.error)]
    fits = [f"{_largest(sweep)} at {at}{'' if sweep.is_limit else ' or more'}" for sweep, at in found if sweep.largest]
    empty = [(sweep, at) for sweep, at in found if sweep.largest is None and sweep.gpu_nbytes]
    none = [at for sweep, at in empty if not all(row.error for row in sweep.rows)]
    if fits:
        yield f"The largest batch that fits: {'; '.join(fits)}."
    if none:
        yield f"None of these surely fits: {'; '.join(none)}."
    yield from (f"At {at} every batch was traced: {sweep.note}." for sweep, at in found if sweep.note and sweep.largest)
    traced = [f"{', '.join(map(str, sweep.traced))} at {at}" for sweep, at in found if sweep.traced and not sweep.note]
    if traced:
        yield f"Traced: {'; '.join(traced)}. The others follow from these, kernel by kernel."


_STOPPED = "Stopped before the end: there may be more rows, and the largest batch is not known."


def _at(sweep: Sweep, varied: Sequence[str]) -> str:
    return ", ".join(f"{name} {sweep.dimensions[name]}" for name in varied)


def _largest(sweep: Sweep) -> str:
    """The largest batch, and how many tokens it has."""
    assert sweep.largest is not None
    batch, length = sweep.largest.batch, sweep.dimensions.get("seq")
    return f"{batch}" if length is None else f"{batch} ({batch * length:,} tokens)"


def _cells(row: Row, sweep: Sweep, paint: TextStyle, *, bars: bool) -> tuple[str, ...]:
    if row.error is not None or row.device is None:
        return (str(row.batch), "", "", "", "", row.error or "")
    found = [getattr(row, name) for name in _PEAKS]
    outcome = row.outcome or ""
    said = paint(outcome, _COLORS.get(outcome))
    if bars and paint.color and paint.blocks and sweep.gpu_nbytes:
        said = f"{paint(bar(row.device.estimate, sweep.gpu_nbytes), _COLORS.get(outcome))} {said}"
    return (str(row.batch), *[format_nbytes(each.estimate) for each in found], said)


def bar(nbytes: int, limit: int) -> str:
    """A bar in a frame that stands for `limit`; beyond it an arrow."""
    eighths = min(8 * _BAR_WIDTH, round(8 * _BAR_WIDTH * nbytes / limit))
    filled = _EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8] * (eighths % 8 > 0)
    return f"{filled:<{_BAR_WIDTH}}{'▶' if nbytes > limit else '│'}"


def _said_range(peak: Interval) -> str:
    if peak.low == peak.high:
        return format_nbytes(peak.estimate)
    return f"{format_nbytes(peak.estimate)} ({format_nbytes(peak.low)} to {format_nbytes(peak.high)})"


def _csv(told: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    dimensions = list(dict.fromkeys(name for sweep in told.sweeps for name in sweep.dimensions))
    bounds = [f"{name}_{bound}" for name in _PEAKS for bound in ("low", "estimate", "high")]
    writer.writerow(
        [
            *("name", "gpu", "dtype", "mode", "optimizer", *dimensions, "batch", *bounds),
            *("outcome", "evidence", "largest", "error"),
        ]
    )
    for sweep in told.sweeps:
        sizes = [sweep.dimensions.get(name, "") for name in dimensions]
        known = [sweep.name, sweep.gpu, sweep.dtype, sweep.mode, sweep.optimizer or "", *sizes]
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

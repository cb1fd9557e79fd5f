"""What fits, as text, Markdown and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tabulate import tabulate

from memlint.base.units import format_nbytes
from memlint.report.escaping import for_log
from memlint.report.text_style import TextStyle, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.commands.sweep.records import Fit, Fits, Way
    from memlint.report.text_style import TextStyle

_EFFECT_COLORS = {"exact": "green", "numerics": "yellow"}


def render(told: Fits, form: str, paint: TextStyle) -> str:
    """`told` as `text`, `markdown` or `json`."""
    if form == "json":
        return told.model_dump_json(indent=2) + "\n"
    return "\n".join(line for fit in for_log(told).fits for line in _lines(fit, paint, markdown=form == "markdown"))


def _lines(fit: Fit, paint: TextStyle, *, markdown: bool) -> Iterator[str]:
    step = "train step" if fit.mode == "train" else "inference"
    optimizer = f", {fit.optimizer}" if fit.optimizer else ""
    title = f"{fit.name} on {fit.gpu_title} ({format_nbytes(fit.gpu_nbytes)}): {step}, {fit.dtype}{optimizer}"
    yield f"### {title}" if markdown else paint(title, bold=True)
    yield ""
    if fit.ways:
        heads = ("largest batch", "device", f"batch {fit.batch} as", "changes", "")
        rows = [row for way in fit.ways for row in _rows(way, paint)]
        alignment = ("right", "right", "left", "left", "left")
        if markdown:
            yield tabulate(rows, heads, tablefmt="github", disable_numparse=True, colalign=alignment)
        else:
            yield from (f"  {line}" for line in table([heads, *rows], alignment))
        yield ""
    yield from (line if markdown else f"  {line}" for line in _said(fit))
    yield ""


def _rows(way: Way, paint: TextStyle) -> Iterator[tuple[str, ...]]:
    """One line for each change; the numbers are those of all together."""
    largest = "none" if way.largest is None else f"{way.largest.batch}{'' if way.is_limit else ' or more'}"
    device = format_nbytes(way.largest.device.estimate) if way.largest and way.largest.device else ""
    parts = "" if way.parts is None else "a whole" if way.parts.num_parts == 1 else _parts(way)
    more = f", {way.flops_change:.0%} more FLOPs" if way.flops_change >= 0.005 else ""
    cost = paint(way.effect, _EFFECT_COLORS[way.effect]) + more if way.changes else ""
    first, *others = way.changes or ("as it is",)
    yield paint(largest, bold=True), device, parts, first, cost
    yield from (("", "", "", change, "") for change in others)


def _parts(way: Way) -> str:
    return f"{way.parts.num_parts} parts of {way.parts.batch}" if way.parts else ""


def _said(fit: Fit) -> Iterator[str]:
    if fit.is_partial:
        yield "Stopped before the end: there may be more ways."
    if fit.note is not None:
        yield f"The batch is not cut into parts: {fit.note}."
    elif fit.ways:
        yield "Parts of a batch are steps whose gradients are added (gradient accumulation) before the optimizer's."
    if fit.ways:
        yield "Each number was simulated with all changes of its row made together, and surely fits."

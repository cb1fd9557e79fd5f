"""What fits, as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterator

from memlint.base.units import format_nbytes
from memlint.commands.fit.fits import Fit, Fits, Way
from memlint.commands.sweep.tables_text import section, title
from memlint.report.escaping import for_log
from memlint.report.text_style import EFFECT_COLORS, TextStyle

_ALIGNMENT = ("right", "right", "left", "left", "left")


def render(fits: Fits, form: str, paint: TextStyle) -> str:
    """`fits` as `text`, `markdown` or `json`."""
    if form == "json":
        return fits.model_dump_json(indent=2) + "\n"
    lines: list[str] = []
    for fit in for_log(fits).fits:
        heads = ("largest batch", "device", f"batch {fit.batch} as", "changes", "")
        rows = [heads, *(row for way in fit.ways for row in _rows(way, paint))]
        lines += section(title(fit), rows, _ALIGNMENT, _sentences(fit), paint, markdown=form == "markdown")
    return "\n".join(lines)


def _rows(way: Way, paint: TextStyle) -> Iterator[tuple[str, ...]]:
    """One line for each change; the numbers are those of all together."""
    largest = "none" if way.largest is None else f"{way.largest.batch}{'' if way.is_limit else ' or more'}"
    device = format_nbytes(way.largest.device.estimate) if way.largest and way.largest.device else ""
    parts = ""
    if way.parts is not None:
        parts = "a whole" if way.parts.num_parts == 1 else f"{way.parts.num_parts} parts of {way.parts.batch}"
    more = f", {way.flops_change:.0%} more FLOPs" if way.flops_change >= 0.005 else ""
    cost = paint(way.effect, EFFECT_COLORS[way.effect]) + more if way.changes else ""
    first, *others = way.changes or ("as it is",)
    yield paint(largest, bold=True), device, parts, first, cost
    yield from (("", "", "", change, "") for change in others)


def _sentences(fit: Fit) -> Iterator[str]:
    if fit.is_partial:
        yield "Stopped before the end: there may be more ways."
    if fit.note is not None:
        yield f"The batch is not cut into parts: {fit.note}."
    elif fit.ways:
        yield "Parts of a batch are steps whose gradients are added (gradient accumulation) before the optimizer's."
    if fit.ways:
        yield "Each number was simulated with all changes of its row made together, and surely fits."

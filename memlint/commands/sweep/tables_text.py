"""Tables and what fits, as text, Markdown and JSON; tables as CSV too."""

import csv
import io
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from memlint.base.units import format_nbytes
from memlint.report.escaping import for_log
from memlint.report.model import Sweep, SweepRow
from memlint.report.phrases import MEASURES, bounds
from memlint.report.tables import Fit, Fits, LongestPrompt, Tables, Way, on_ranks
from memlint.report.text_style import EFFECT_COLORS, OUTCOME_COLORS, TextStyle, table

_BOUNDS = ("low", "estimate", "high")
_LAST = ("outcome", "evidence", "largest", "error")
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_FIT_ALIGNMENT = ("right", "right", "left", "left", "left")
_BAR_WIDTH = 20
"""Columns that stand for all of the GPU."""


def render(tables: Tables, form: str, paint: TextStyle) -> str:
    """`tables` as `text`, `markdown`, `csv` or `json`."""
    if form == "json":
        return tables.model_dump_json(indent=2) + "\n"
    if form == "csv":
        return _csv(tables)
    # Sweeps that differ in the sizes of dimensions only stand in one table.
    identity = operator.attrgetter("name", "target", "mode", "optimizer", "dtype", "gpu", "strategy", "world_size")
    sweeps = for_log(tables).sweeps
    groups = [list(group) for _, group in itertools.groupby(sweeps, key=identity)]
    lines = [line for group in groups for line in _lines(group, paint, markdown=form == "markdown")]
    return "\n".join([*lines, *_by_ranks(sweeps, paint, markdown=form == "markdown")])


def title(entry: Any) -> str:
    """Workload, GPU and settings of a Sweep or a Fit."""
    gpu = f"{entry.gpu_title} ({format_nbytes(entry.gpu_nbytes)})" if entry.gpu_nbytes else entry.gpu_title
    step = {"train": "train step", "generate": "generation"}.get(entry.mode, "inference")
    optimizer = f", {entry.optimizer}" if entry.optimizer else ""
    ranks = f", {on_ranks(entry)}" if entry.world_size > 1 else ""
    return f"{entry.name} on {gpu}: {step}, {entry.title}{optimizer}{ranks}"


def section(
    title: str,
    rows: Sequence[Sequence[str]],
    alignment: Sequence[str],
    sentences: Iterable[str],
    paint: TextStyle,
    *,
    markdown: bool,
) -> Iterator[str]:
    """Lines of a title, a table whose first row is its head, if it has others, and sentences below it."""
    yield f"### {title}" if markdown else paint(title, bold=True)
    yield ""
    if len(rows) > 1:
        if markdown:
            yield tabulate(rows[1:], rows[0], tablefmt="github", disable_numparse=True, colalign=alignment)
        else:
            yield from (f"  {line}" for line in table(rows, alignment))
        yield ""
    yield from (line if markdown else f"  {line}" for line in sentences)
    yield ""


def _lines(sweeps: Sequence[Sweep], paint: TextStyle, *, markdown: bool) -> Iterator[str]:
    first = sweeps[0]
    varied = [name for name in first.dimensions if len({each.dimensions.get(name) for each in sweeps}) > 1]
    fixed = _sizes({name: size for name, size in first.dimensions.items() if name not in varied})
    heads = (*varied, "batch", *MEASURES, "")
    cells = [
        (*[str(sweep.dimensions[name]) for name in varied], *_cells(row, sweep, paint, bars=not markdown))
        for sweep in sweeps
        for row in sweep.rows
    ]
    alignment = ("right",) * (len(heads) - 1) + ("left",)
    sentences = _sentences(first) if len(sweeps) == 1 else _sentences_together(sweeps, varied)
    return section(title(first) + fixed, [heads, *cells], alignment, sentences, paint, markdown=markdown)


def _sizes(dimensions: Mapping[str, int]) -> str:
    return "".join(f", {name} {size}" for name, size in dimensions.items())


def _by_ranks(sweeps: Sequence[Sweep], paint: TextStyle, *, markdown: bool) -> Iterator[str]:
    """List the largest batch of each rank, by strategy and GPU, if there are several numbers of ranks."""
    if not any(sweep.world_size > 1 for sweep in sweeps):
        return
    rows = [("workload", "GPU", "dtype", "ranks", "largest batch of a rank", "of all ranks", "device")]
    for sweep in sweeps:
        sizes = _sizes(sweep.dimensions)
        cells = ("none" if sweep.error is None else "", "", "")
        if (most := sweep.largest) is not None:
            more = "" if sweep.is_limit else " or more"
            device = format_nbytes(most.device.estimate) if most.device else ""
            cells = (f"{most.batch}{more}", f"{most.batch * sweep.world_size}", device)
        rows.append((f"{sweep.name}{sizes}", sweep.gpu, sweep.title, on_ranks(sweep), *cells))
    alignment = ("left", "left", "left", "left", "right", "right", "right")
    yield from section("Ranks", rows, alignment, (), paint, markdown=markdown)


def _sentences(sweep: Sweep) -> Iterator[str]:
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
        between = f" ({bounds(device)})" if device and bounds(device) else ""
        nbytes = f", with {format_nbytes(device.estimate)}{between}" if device else ""
        more = "" if sweep.is_limit else " A larger one may."
        yield f"The largest batch that fits is {_largest(sweep)}{nbytes}.{more}"
    if sweep.note is not None:
        yield f"Every batch was traced: {sweep.note}."
    else:
        yield f"Traced at {', '.join(map(str, sweep.traced))}; the others follow from these, kernel by kernel."


def _sentences_together(sweeps: Sequence[Sweep], varied: Sequence[str]) -> Iterator[str]:
    """The same for tables that differ in the sizes of dimensions."""
    if any(sweep.is_partial for sweep in sweeps):
        yield _STOPPED
    whole = [
        (sweep, ", ".join(f"{name} {sweep.dimensions[name]}" for name in varied))
        for sweep in sweeps
        if not (sweep.is_partial or sweep.error)
    ]
    fits = [f"{_largest(sweep)} at {at}{'' if sweep.is_limit else ' or more'}" for sweep, at in whole if sweep.largest]
    empty = [(sweep, at) for sweep, at in whole if sweep.largest is None and sweep.gpu_nbytes]
    none = [at for sweep, at in empty if not all(row.error for row in sweep.rows)]
    if fits:
        yield f"The largest batch that fits: {'; '.join(fits)}."
    if none:
        yield f"None of these surely fits: {'; '.join(none)}."
    yield from (f"At {at} every batch was traced: {sweep.note}." for sweep, at in whole if sweep.note and sweep.largest)
    traced = [f"{', '.join(map(str, sweep.traced))} at {at}" for sweep, at in whole if sweep.traced and not sweep.note]
    if traced:
        yield f"Traced: {'; '.join(traced)}. The others follow from these, kernel by kernel."


_STOPPED = "Stopped before the end: there may be more rows, and the largest batch is not known."


def _largest(sweep: Sweep) -> str:
    """The largest batch, and how many tokens it has."""
    assert sweep.largest is not None
    batch, length = sweep.largest.batch, sweep.dimensions.get("seq")
    return f"{batch}" if length is None else f"{batch} ({batch * length:,} tokens)"


def _cells(row: SweepRow, sweep: Sweep, paint: TextStyle, *, bars: bool) -> tuple[str, ...]:
    if row.error is not None or row.device is None:
        return (str(row.batch), "", "", "", "", row.error or "")
    outcome = row.outcome or ""
    verdict = paint(outcome, OUTCOME_COLORS.get(outcome))
    if bars and paint.color and paint.blocks and sweep.gpu_nbytes:
        verdict = f"{paint(bar(row.device.estimate, sweep.gpu_nbytes), OUTCOME_COLORS.get(outcome))} {verdict}"
    return (str(row.batch), *[format_nbytes(getattr(row, name).estimate) for name in MEASURES], verdict)


def bar(nbytes: int, limit: int) -> str:
    """A bar in a frame that stands for `limit`; beyond it an arrow."""
    eighths = min(8 * _BAR_WIDTH, round(8 * _BAR_WIDTH * nbytes / limit))
    filled = _EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8] * (eighths % 8 > 0)
    return f"{filled:<{_BAR_WIDTH}}{'▶' if nbytes > limit else '│'}"


def _csv(tables: Tables) -> str:
    """A line for each row, with the sizes of all dimensions there are and the bounds of all peaks.

    The column of a dimension that is called as another column is `dim_` and its name.
    """
    text = io.StringIO()
    first: tuple[str, ...] = ("name", "gpu", "dtype", "mode", "optimizer")
    if any(sweep.world_size > 1 for sweep in tables.sweeps):
        first += ("strategy", "world_size")
    last = ("batch", *(f"{name}_{bound}" for name in MEASURES for bound in _BOUNDS), *_LAST)
    names = dict.fromkeys(name for sweep in tables.sweeps for name in sweep.dimensions)
    dimensions = {name: f"dim_{name}" if name in first + last else name for name in names}
    writer = csv.DictWriter(text, (*first, *dimensions.values(), *last), lineterminator="\n")
    writer.writeheader()
    for sweep in tables.sweeps:
        sizes = {dimensions[name]: size for name, size in sweep.dimensions.items()}
        known = {name: getattr(sweep, name) for name in first} | sizes
        if sweep.error is not None:
            writer.writerow(known | {"error": sweep.error})
        for row in sweep.rows:
            peaks = {name: peak for name in MEASURES if (peak := getattr(row, name))}
            nbytes = {f"{name}_{bound}": getattr(peak, bound) for name, peak in peaks.items() for bound in _BOUNDS}
            largest = sweep.largest.batch if sweep.largest else ""
            others = {name: getattr(row, name) for name in ("batch", "outcome", "evidence", "error")}
            writer.writerow({**known, **nbytes, **others, "largest": largest})
    return text.getvalue()


def render_fits(fits: Fits, form: str, paint: TextStyle) -> str:
    """`fits` as `text`, `markdown` or `json`."""
    if form == "json":
        return fits.model_dump_json(indent=2) + "\n"
    lines: list[str] = []
    for fit in for_log(fits).fits:
        heads = ("largest batch", "device", f"batch {fit.batch} as", "changes", "")
        rows = [heads, *(row for way in fit.ways for row in _fit_rows(way, paint))]
        lines += section(
            title(fit) + _sizes(fit.dimensions),
            rows,
            _FIT_ALIGNMENT,
            _fit_sentences(fit),
            paint,
            markdown=form == "markdown",
        )
    lines += _overview(for_log(fits).fits, paint, markdown=form == "markdown")
    return "\n".join(lines)


def _overview(fits: Sequence[Fit], paint: TextStyle, *, markdown: bool) -> Iterator[str]:
    """List the largest batch of each rank, without and with the best changes, if there are several numbers of ranks."""
    if not any(fit.world_size > 1 for fit in fits):
        return
    rows = [("workload", "GPU", "ranks", "largest batch of a rank", "with changes", "changes")]
    for fit in fits:
        best = max(fit.ways, key=_most, default=None)
        first = str(_most(fit.ways[0])) if fit.ways else ""
        changes = "; ".join(best.changes) if best and _most(best) > _most(fit.ways[0]) else ""
        rows.append((fit.name, fit.gpu, on_ranks(fit), first, str(_most(best)) if changes and best else "", changes))
    alignment = ("left", "left", "left", "right", "right", "left")
    yield from section("Ranks", rows, alignment, _fewest(fits), paint, markdown=markdown)


def _most(way: Way) -> int:
    return way.largest.batch if way.largest else 0


def _fewest(fits: Sequence[Fit]) -> Iterator[str]:
    """For each Workload the fewest GPUs on which the batch asked for fits on every rank."""
    for name, own in itertools.groupby(sorted(fits, key=operator.attrgetter("name")), operator.attrgetter("name")):
        fitting = [
            (fit.world_size, len(way.changes), fit, way) for fit in own for way in fit.ways if _most(way) >= fit.batch
        ]
        if not fitting:
            yield f"{name}: its batch fits nowhere as a whole."
            continue
        _size, _number, fit, way = min(fitting, key=operator.itemgetter(0, 1))
        ways = "; ".join([on_ranks(fit), *way.changes])
        yield f"{name}: batch {fit.batch} of each rank fits {fit.world_size} x {fit.gpu_title} ({ways})."


def _fit_rows(way: Way, paint: TextStyle) -> Iterator[tuple[str, ...]]:
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


def _prompt_sentence(longest: LongestPrompt) -> str:
    if longest.device is None:
        return f"At batch {longest.batch} no prompt fits."
    of_model = ", as long as the model takes beside the new tokens" if longest.prompt == longest.of_model else ""
    nbytes = format_nbytes(longest.device.estimate)
    return f"The longest prompt at batch {longest.batch}: {longest.prompt:,} tokens{of_model}, with {nbytes}."


def _fit_sentences(fit: Fit) -> Iterator[str]:
    if fit.is_partial:
        yield "Stopped before the end: there may be more ways."
    if fit.note is not None:
        yield f"The batch is not cut into parts: {fit.note}."
    elif fit.ways:
        yield "Parts of a batch are steps whose gradients are added (gradient accumulation) before the optimizer's."
    if fit.longest_prompt is not None:
        yield _prompt_sentence(fit.longest_prompt)
    if fit.ways:
        yield "Each number was simulated with all changes of its row made together, and surely fits."

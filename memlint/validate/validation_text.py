"""Comparisons and scoreboards for a terminal and for docs/accuracy.md."""

from collections.abc import Iterable, Iterator, Sequence

from tabulate import tabulate

from memlint.base.units import format_nbytes
from memlint.report.text_style import TextStyle, cut, table
from memlint.validate.comparison import COMPARED, Comparison, Figure, differences
from memlint.validate.measurement import Allocation, Measurement
from memlint.validate.scoreboard import FITTED, HELD_OUT, GroupErrors, Score, Scoreboard

_CLOSE = 0.01
_LISTED = 40  # differences of allocations
_COLUMN = 80  # characters of either side
_SHOWN = 3  # allocations of one difference
_ALIGNMENT = ("left", "right", "right", "right", "left")


def render_comparison(comparison: Comparison, paint: TextStyle) -> str:
    """Return prediction and measurement side by side, with the error of each figure."""
    return "\n".join(_comparison(comparison, paint)) + "\n"


def render_measurement(measurement: Measurement, paint: TextStyle) -> str:
    """Return the measurement in one line."""
    peaks = measurement.peaks
    numbers = ", ".join(f"{name} {format_nbytes(n)}" for name in COMPARED if (n := getattr(peaks, name)) is not None)
    return f"{paint(measurement.subject.name, bold=True)}: {numbers}"


def _comparison(comparison: Comparison, paint: TextStyle) -> Iterator[str]:
    measured, subject = comparison.measurement, comparison.measurement.subject
    settings = [str(subject.table[key]) for key in ("mode", "dtype", "optimizer") if key in subject.table]
    settings.insert(1, f"batch {subject.table.get('batch')}")
    machine = measured.machine
    yield paint(f"{subject.name}", bold=True) + f" ({subject.table['target']})"
    yield paint(f"  {', '.join(settings)}; on {machine.title}, torch {machine.torch}", dim=True)
    yield ""
    peaks, phases, categories = comparison.peaks(), comparison.phases(), comparison.categories()
    heads = ("", *(paint(text, dim=True) for text in ("predicted", "measured", "error")), "")
    lines = list(table([heads, *(_figure(each, paint) for each in (*peaks, *phases, *categories))], _ALIGNMENT))
    first, second = 1 + len(peaks), 1 + len(peaks) + len(phases)
    yield from lines[:first]
    if phases:
        yield from (paint("  requested at most in each phase", dim=True), *lines[first:second])
    if categories:
        yield from (paint("  held by the program", dim=True), *lines[second:])
    there = f"{measured.peak_phase}{_at(measured.peak_op)}"
    here = f"{comparison.prediction.peak_phase}{_at(comparison.prediction.peak_op)}"
    yield f"  measured peak in {there}, predicted in {here}"
    if comparison.cap is not None:
        cap = comparison.cap
        outcome = paint("held", "green", bold=True) if cap.held else paint("out of memory", "red", bold=True)
        retries = f", {cap.num_retries} retries" if cap.num_retries else ""
        yield f"  with {format_nbytes(cap.limit)} reserved as a hard limit: {outcome}{retries}"

    if comparison.prediction.allocations or measured.allocations:
        yield from _events(comparison, paint)


def _events(comparison: Comparison, paint: TextStyle) -> Iterator[str]:
    predicted, measured = comparison.prediction.allocations, comparison.measurement.allocations
    yield paint(f"  allocations, in order: {len(predicted)} predicted, {len(measured)} measured", dim=True)
    rows = [
        (f"  {count} x", cut(_list(difference.predicted), _COLUMN), cut(_list(difference.measured), _COLUMN))
        for difference, count in sorted(differences(predicted, measured), key=lambda item: -abs(item[0].nbytes))
    ]
    if rows:
        heads = ("", "only predicted", "only measured")
        yield from table([heads, *rows[:_LISTED]], ("right", "left", "left"))
    else:
        yield f"  {paint('all of the same size in the same phase', 'green')}"


def _list(allocations: Sequence[Allocation]) -> str:
    shown = [f"{format_nbytes(a.nbytes)} {a.op} ({a.phase})" for a in allocations[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(allocations) - _SHOWN} more" if len(allocations) > _SHOWN else "")


def _figure(figure: Figure, paint: TextStyle) -> tuple[str, ...]:
    interval = ""
    if figure.low is not None and figure.high is not None and figure.low != figure.high:
        word = "within" if figure.low <= figure.measured <= figure.high else "outside"
        interval = f"{word} {format_nbytes(figure.low)} to {format_nbytes(figure.high)}"
    color = "green" if not figure.difference else "yellow" if abs(figure.error) <= _CLOSE else "red"
    return (
        f"  {figure.name.replace('_', ' ')}",
        format_nbytes(figure.predicted),
        format_nbytes(figure.measured),
        paint(_signed(figure.error) if figure.difference else "exact", color),
        paint(interval, dim=True),
    )


def _at(op: str) -> str:
    return f" at {op}" if op else ""


def render_scoreboard(board: Scoreboard, paint: TextStyle) -> str:
    """Return the scoreboard as text."""
    return "\n\n".join("\n".join(_score(score, paint)) for score in board.scores) + "\n"


def _score(score: Score, paint: TextStyle) -> Iterator[str]:
    yield paint(f"{score.gpu}, torch {score.torch}", bold=True)
    header, *rows = _cells(score.lines)
    cells = [tuple(paint(f"  {c}" if not i else c, dim=True) for i, c in enumerate(header))]
    cells += [(f"  {row[0]}", *row[1:]) for row in rows]
    yield from table(cells, ("left", *["right"] * (len(header) - 1)))
    if score.worst:
        yield paint("  Worst", bold=True)
        worst = [(f"  {bad.name}", _signed(bad.error), bad.reason) for bad in score.worst]
        yield from table(worst, ("left", "right", "left"))
    for name, error in score.failed.items():
        yield f"  {paint(name, 'red')}: no estimate: {error}"


def _cells(lines: Sequence[GroupErrors]) -> list[tuple[str, ...]]:
    """Return a header, then one row per line; median and 95th percentile of each peak that the device has."""
    names = list(lines[0].spreads) if lines else []
    header = ("family", "count", *(f"{name} {what}" for name in names for what in ("median", "95 %")))
    return [(*header, "too low", "exact")] + [
        (
            line.family,
            str(line.count),
            *(f"{getattr(line.spreads[name], key):.2%}" for name in names for key in ("median", "p95")),
            f"{line.too_low:.1%}",
            f"{line.exact:.0%}",
        )
        for line in lines
    ]


def _signed(share: float) -> str:
    return f"{share:+.2%}" if abs(share) >= 0.00005 else f"{share:+.1e}"


ACCURACY = """\
# How accurate the estimates are

This page is generated: `memlint validate --against fixtures/measurements --output-format markdown -o docs/accuracy.md`.
It holds today's estimates against what real devices measured, recorded in `fixtures/measurements`, whose README says
how to record a GPU. It needs none to be generated, and a test fails when it worsens.

- *requested*: bytes that tensors asked for; *allocated* and *reserved*: `torch.cuda.max_memory_allocated` and
  `max_memory_reserved`; *device*: what NVML shows. The host has only the first.
- Errors are absolute differences as shares of what was measured: their median, and the smallest error that 95 % of the
  workloads do not exceed. *Too low* is the share of estimates more than 1 % below the measurement.
- Half of the suite, drawn once at random, is *held out*: nothing in memlint may be fitted to it. Only the other half
  may be used to choose a constant.
"""


def render_accuracy(board: Scoreboard, holdouts: Iterable[str]) -> str:
    """Return the scoreboard as a page; `holdouts` are the names of the held-out Subjects."""
    blocks = [ACCURACY.rstrip()]
    if not any(score.gpu != "cpu" for score in board.scores):
        blocks.append("No GPU has been recorded yet.")
    for score in board.scores:
        blocks.append(f"## {score.gpu}, torch {score.torch}")
        header, *rows = _cells(score.lines)
        blocks.append(_markdown(header, rows, ("left", *["right"] * (len(header) - 1))))
        if score.worst:
            worst = [
                (bad.name, bad.family, HELD_OUT if bad.holdout else FITTED, _signed(bad.error), bad.reason)
                for bad in score.worst
            ]
            titles = ("worst", "family", "half", "error", "where the two part")
            blocks.append(_markdown(titles, worst, ("left", "left", "left", "right", "left")))
        else:
            blocks.append("Every estimate is equal to the byte.")
        if score.failed:
            blocks.append(_markdown(("no estimate", "why"), list(score.failed.items()), ("left", "left")))
    names = sorted(set(holdouts))
    if names:
        blocks.append("## Held out of every fit")
        blocks.append(", ".join(f"`{name}`" for name in names) + ".")
    return "\n\n".join(blocks) + "\n"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]], alignment: Sequence[str]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return tabulate(cells, list(header), tablefmt="pipe", colalign=alignment, disable_numparse=True)

"""The live bytes over the traced steps on one line of a terminal, and below it the names of the phases."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from memlint.base.units import format_nbytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memlint.report.layout import Paint
    from memlint.report.model import Course, PhaseName

_BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_ASCII = ".:-=+*%#"
_COLORS = {"forward": "cyan", "backward": "magenta", "optimizer": "blue", "other": None}
_MARGIN = "  "


class _Column(NamedTuple):
    nbytes: int
    phase: PhaseName
    step: int


class _Stretch(NamedTuple):
    """Columns of one phase of one step."""

    first: int
    columns: Sequence[_Column]

    @property
    def phase(self) -> PhaseName:
        return self.columns[0].phase

    @property
    def name(self) -> str:
        return "setup" if self.columns[0].step < 0 else "" if self.phase == "other" else self.phase


def course_lines(course: Course, paint: Paint) -> Iterator[str]:
    """A heading, a line of bars as high as the live bytes, and the names of the phases that have room for them."""
    columns = _fitted(course, paint.look.width - len(_MARGIN))
    if not columns:
        return
    most = max(column.nbytes for column in columns)
    steps = max(column.step for column in columns) + 1
    over = f"{steps} steps" if steps > 1 else "the step"
    yield paint(f"{_MARGIN}Over {over}, requested bytes up to {format_nbytes(most)}", bold=True)
    bars = _BLOCKS if paint.look.blocks else _ASCII
    stretches = list(_stretches(columns))
    drawn = ("".join(bars[_height(column.nbytes, most)] for column in stretch.columns) for stretch in stretches)
    yield _MARGIN + "".join(paint(text, _COLORS[stretch.phase]) for text, stretch in zip(drawn, stretches, strict=True))
    names = _names(stretches, len(columns), paint)
    if names:
        yield _MARGIN + names


def _fitted(course: Course, width: int) -> list[_Column]:
    """The stretches of the course, or the highest of several in each column where there are more than `width`."""
    told = [_Column(*each) for each in zip(course.nbytes, course.phases, course.steps, strict=False)]
    number = min(len(told), max(width, 1))
    edges = [len(told) * column // number for column in range(number + 1)] if told else []
    return [told[first]._replace(nbytes=max(each.nbytes for each in told[first:end])) for first, end in pairwise(edges)]


def _height(nbytes: int, most: int) -> int:
    """0 to 7, rounded up: only what comes near the peak is as high as it."""
    return min(max(-(-8 * nbytes // max(most, 1)) - 1, 0), 7)


def _stretches(columns: Sequence[_Column]) -> Iterator[_Stretch]:
    first = 0
    for _key, group in groupby(columns, key=lambda column: (column.phase, column.step)):
        stretch = _Stretch(first, list(group))
        first += len(stretch.columns)
        yield stretch


def _names(stretches: Sequence[_Stretch], width: int, paint: Paint) -> str:
    """The name of each stretch below its middle, the longest stretches first; left out where it meets another.

    The setup, which is no phase of a step, comes last.
    """
    placed: dict[int, _Stretch] = {}
    free = [True] * width
    for stretch in sorted(stretches, key=lambda each: (each.columns[0].step < 0, -len(each.columns))):
        length = len(stretch.name)
        start = stretch.first + (len(stretch.columns) - length) // 2
        start = max(min(start, width - length), 0)
        if 0 < length <= width and all(free[max(start - 1, 0) : start + length + 1]):
            free[start : start + length] = [False] * length
            placed[start] = stretch
    text, end = "", 0
    for start, stretch in sorted(placed.items()):
        text += " " * (start - end) + paint(stretch.name, _COLORS[stretch.phase])
        end = start + len(stretch.name)
    return text

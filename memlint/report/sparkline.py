"""The live bytes over the traced steps on one line of a terminal, and below it the names of the phases."""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.memory.records import Phase
from memlint.report.model import Course
from memlint.report.text_style import TextStyle

_BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_ASCII = ".:-=+*%#"
_COLORS = {
    "forward": "cyan",
    "backward": "magenta",
    "optimizer": "blue",
    "evaluation": "green",
    "prefill": "cyan",
    "decode": "green",
    "generation": "cyan",
    "saving": "yellow",
    "other": None,
}
_MARGIN = "  "


class _Column(NamedTuple):
    nbytes: int
    phase: Phase
    step: int


class _Stretch(NamedTuple):
    """Columns of one phase of one step."""

    first: int
    phase: Phase
    step: int
    nbytes: Sequence[int]

    @property
    def name(self) -> str:
        if self.phase != "other":
            return self.phase
        return "setup" if self.step < 0 else ""


def course_lines(course: Course, paint: TextStyle) -> Iterator[str]:
    """A heading, a line of bars as high as the live bytes, and the names of the phases that have room for them."""
    columns = _fitted(course, paint.width - len(_MARGIN))
    if not columns:
        return
    most = max(column.nbytes for column in columns)
    steps = max(column.step for column in columns) + 1
    over = f"{steps} steps" if steps > 1 else "the step"
    yield paint(f"{_MARGIN}Over {over}, requested bytes up to {format_nbytes(most)}", bold=True)
    bars = _BLOCKS if paint.blocks else _ASCII
    stretches = list(_stretches(columns))
    parts = [("".join(bars[_height(each, most)] for each in stretch.nbytes), stretch.phase) for stretch in stretches]
    yield _MARGIN + "".join(paint(text, _COLORS[phase]) for text, phase in parts)
    names = _names(stretches, len(columns), paint)
    if names:
        yield _MARGIN + names


def _fitted(course: Course, width: int) -> list[_Column]:
    """The stretches of the course, or the highest of several in each column where there are more than `width`."""
    columns = [_Column(*each) for each in zip(course.nbytes, course.phases, course.steps, strict=False)]
    number = min(len(columns), max(width, 1))
    edges = [len(columns) * column // number for column in range(number + 1)] if columns else []
    return [max(columns[first:end], key=lambda column: column.nbytes) for first, end in pairwise(edges)]


def _height(nbytes: int, most: int) -> int:
    """0 to 7, rounded up: only what comes near the peak is as high as it."""
    return min(max(-(-8 * nbytes // max(most, 1)) - 1, 0), 7)


def _stretches(columns: Sequence[_Column]) -> Iterator[_Stretch]:
    first = 0
    for (phase, step), group in groupby(columns, key=lambda column: column[1:]):
        stretch = _Stretch(first, phase, step, [column.nbytes for column in group])
        first += len(stretch.nbytes)
        yield stretch


def _names(stretches: Sequence[_Stretch], width: int, paint: TextStyle) -> str:
    """The name of each stretch below its middle, the longest stretches first; left out where it meets another.

    The setup, which is no phase of a step, comes last.
    """
    placed: dict[int, _Stretch] = {}
    free = [True] * width
    for stretch in sorted(stretches, key=lambda each: (each.name == "setup", -len(each.nbytes))):
        length = len(stretch.name)
        start = max(min(stretch.first + (len(stretch.nbytes) - length) // 2, width - length), 0)
        if 0 < length <= width and all(free[max(start - 1, 0) : start + length + 1]):
            free[start : start + length] = [False] * length
            placed[start] = stretch
    text, end = "", 0
    for start, stretch in sorted(placed.items()):
        text += " " * (start - end) + paint(stretch.name, _COLORS[stretch.phase])
        end = start + len(stretch.name)
    return text

"""The memory timeline as areas of an SVG that need no script.

Coordinates are thousandths of the width, where events count, and of the height, where bytes do, downwards. A column
stands for some events in a row and shows the one of them with the most live bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, count, groupby
from typing import TYPE_CHECKING, get_args

from memlint.report.model import CategoryName
from memlint.report.page.timelines import stretches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memlint.report.model import Course, PhaseName, Timeline, Workload

# From the bottom of the stack to its top: what lives long first.
CATEGORIES: tuple[CategoryName, ...] = (
    *("parameter", "buffer", "optimizer_state", "gradient", "input", "activation", "temporary", "workspace", "other"),
)
SIDE = 1000
_HEADROOM = 1.08
_LABEL_WIDTH = 160
_LABEL_HEIGHT = 60


@dataclass(frozen=True, slots=True)
class Area:
    """What lies below the upper edge of one category, down to the bottom: each hides a part of the one before."""

    category: CategoryName | None
    """None where the Report does not tell categories apart."""
    path: str
    """Data of an SVG path."""


@dataclass(frozen=True, slots=True)
class Label:
    """Text at a point."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Point:
    """The first of the highest points."""

    x: float
    y: float
    nbytes: int


@dataclass(frozen=True, slots=True)
class Span:
    """Columns in a row that belong to one phase of one step."""

    x: float
    width: float
    phase: PhaseName
    step: int
    highest: int
    """The most bytes live within it."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A timeline drawn."""

    areas: list[Area]
    labels: list[Label]
    ticks: list[Label]
    spans: list[Span]
    peak: Point
    num_events: int | None
    """None where only a Course was there."""


@dataclass(frozen=True, slots=True)
class _Columns:
    amounts: list[Sequence[int]]
    """For each column the bytes of each category."""
    marks: list[tuple[PhaseName, int]]
    """For each column its phase and step."""


def picture(workload: Workload) -> Picture | None:
    """The Timeline of a Workload, its Course where there is none, None where nothing took memory."""
    course = workload.estimate.course if workload.estimate is not None else None
    if workload.timeline is not None and workload.timeline.events:
        return _drawn(_of_timeline(workload.timeline), CATEGORIES, len(workload.timeline.events))
    if course is not None and course.nbytes:
        return _drawn(_of_course(course), (None,), None)
    return None


def tick_step(top: int) -> tuple[float, int, str]:
    """The distance of two to five ticks up to `top` bytes, the bytes of its unit, and the unit's name."""
    unit, name = 1, "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if top < unit * 1024:
            break
        unit, name = unit * 1024, larger
    sizes = (digit * 10.0**power for power in count(-1) for digit in (1, 2, 5))
    return next(size for size in sizes if size * 5 * unit >= top), unit, name


def _of_course(course: Course) -> _Columns:
    return _Columns([(nbytes,) for nbytes in course.nbytes], list(zip(course.phases, course.steps, strict=True)))


def _of_timeline(timeline: Timeline) -> _Columns:
    number = min(SIDE, len(timeline.events))
    edges = [len(timeline.events) * column // number for column in range(number + 1)]
    ranks = [CATEGORIES.index(timeline.sites[site].category) for site in timeline.buffer_sites]
    live = [0] * len(CATEGORIES)
    total = 0
    column, highest = 0, -1
    amounts: list[Sequence[int]] = []
    for position, event in enumerate(timeline.events):
        if position == edges[column + 1]:
            column, highest = column + 1, -1
        buffer = event if event >= 0 else ~event
        difference = timeline.nbytes[buffer] if event >= 0 else -timeline.nbytes[buffer]
        live[ranks[buffer]] += difference
        total += difference
        if total > highest:
            highest = total
            amounts[column:] = [tuple(live)]
    starts = {stretch.first: (stretch.phase, stretch.step) for stretch in stretches(timeline)}
    marks: list[tuple[PhaseName, int]] = []
    pending = sorted(starts)
    for first in edges[:-1]:
        while len(pending) > 1 and pending[1] <= first:
            pending.pop(0)
        marks.append(starts[pending[0]])
    return _Columns(amounts, marks)


def _drawn(columns: _Columns, categories: Sequence[CategoryName | None], num_events: int | None) -> Picture:
    stacks = [list(accumulate(amounts)) for amounts in columns.amounts]
    totals = [stack[-1] for stack in stacks]
    top = int(max(totals) * _HEADROOM) or 1
    edges = [[round(SIDE * (1 - stack[rank] / top)) for stack in stacks] for rank in range(len(categories))]
    areas: list[Area] = []
    labels: list[Label] = []
    below = [SIDE] * len(stacks)
    for category, edge in zip(categories, edges, strict=True):
        if any(upper < lower for upper, lower in zip(edge, below, strict=True)):
            areas.append(Area(category, _path(edge)))
            if category is not None:
                labels += _label(edge, below, category.replace("_", " "))
        below = edge
    highest = totals.index(max(totals))
    return Picture(
        areas=areas[::-1],
        labels=labels,
        ticks=list(_ticks(top)),
        spans=list(_spans(columns.marks, totals)),
        peak=Point(SIDE * (highest + 0.5) / len(totals), SIDE * (1 - totals[highest] / top), totals[highest]),
        num_events=num_events,
    )


def _path(edge: Sequence[int]) -> str:
    """The steps of an upper edge and the ground below it; what is as high as before is not said again."""
    parts, height = [f"M0 {SIDE}"], SIDE
    for column, upper in enumerate(edge):
        if upper != height:
            parts.append(f"H{round(SIDE * column / len(edge))}V{upper}")
            height = upper
    return "".join([*parts, f"H{SIDE}V{SIDE}Z"]).replace("H0V", "V", 1)


def _label(edge: Sequence[int], below: Sequence[int], text: str) -> Iterator[Label]:
    """The text where it has most room between two edges, if it has enough anywhere."""
    width = max(1, len(edge) * _LABEL_WIDTH // SIDE)
    rooms = []
    for start in range(0, len(edge) - width + 1, max(1, width // 3)):
        upper, lower = max(edge[start : start + width]), min(below[start : start + width])
        rooms.append((lower - upper, SIDE * (start + width / 2) / len(edge), (lower + upper) / 2))
    room, x, y = max(rooms)
    if room >= _LABEL_HEIGHT:
        yield Label(x, y, text)


def _ticks(top: int) -> Iterator[Label]:
    size, unit, name = tick_step(top)
    for number in range(1, int(top / (size * unit)) + 1):
        y = SIDE * (1 - number * size * unit / top)
        if y > SIDE * 0.05:
            yield Label(0, y, f"{number * size:g} {name}")


def _spans(marks: Sequence[tuple[PhaseName, int]], totals: Sequence[int]) -> Iterator[Span]:
    column = 0
    for (phase, step), members in groupby(marks):
        end = column + len(list(members))
        yield Span(SIDE * column / len(marks), SIDE * (end - column) / len(marks), phase, step, max(totals[column:end]))
        column = end


assert set(CATEGORIES) == set(get_args(CategoryName))

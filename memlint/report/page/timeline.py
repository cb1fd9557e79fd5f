"""The memory timeline as areas of an SVG that need no script.

Coordinates are thousandths of the width, for events, and of the height, for bytes, downwards. A column stands for
several consecutive events and shows the one with the most live bytes.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, count, groupby, pairwise
from typing import NamedTuple

from memlint.memory.records import Category, Phase
from memlint.report.model import Stretch, Timeline, Workload
from memlint.report.phrases import spaced

# From the bottom of the stack to its top: the longest-lived categories first.
CATEGORIES = (
    *(Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE, Category.GRADIENT, Category.INPUT),
    *(Category.KV_CACHE, Category.ACTIVATION, Category.TEMPORARY),
    *(Category.COMMUNICATION, Category.WORKSPACE, Category.OTHER),
)
SIDE = 1000
_HEADROOM = 1.08
_LABEL_WIDTH = 160
_LABEL_HEIGHT = 60


class Area(NamedTuple):
    """The region below the upper edge of one category, down to the bottom: each hides a part of the one before."""

    category: Category | None
    """None if the Report does not distinguish categories."""
    path: str
    """Data of an SVG path."""


class Label(NamedTuple):
    """Text at a point."""

    x: float
    y: float
    text: str


class Point(NamedTuple):
    """The first of the highest points."""

    x: float
    y: float
    nbytes: int


class Span(NamedTuple):
    """Consecutive columns of one phase of one step."""

    x: float
    width: float
    phase: Phase
    step: int
    highest: int
    """The most live bytes within it."""


class Picture(NamedTuple):
    """A drawn timeline."""

    areas: list[Area]
    labels: list[Label]
    ticks: list[Label]
    spans: list[Span]
    peak: Point
    num_events: int | None
    """None if only a Course was available."""
    failures: list[float]
    """The moments at which requests failed, from left to right."""
    alive: frozenset[Category]
    """Categories with any bytes at any time, as far as the Report distinguishes categories."""


class _Column(NamedTuple):
    amounts: Sequence[int]
    """The bytes of each category."""
    part: tuple[Phase, int]
    """Phase and step."""


def picture(workload: Workload) -> Picture | None:
    """Draw the Timeline of a Workload, or else its Course; None if nothing took memory."""
    course = workload.estimate.course if workload.estimate is not None else None
    if workload.timeline is not None and workload.timeline.events:
        whole = workload.timeline
        failures = [SIDE * (each + 0.5) / len(whole.events) for each in sorted(whole.failures)]
        return _drawn(list(_of_timeline(whole)), CATEGORIES, len(whole.events), failures)
    if course is not None and course.nbytes:
        parts = zip(course.phases, course.steps, strict=True)
        columns = [_Column((nbytes,), part) for nbytes, part in zip(course.nbytes, parts, strict=True)]
        return _drawn(columns, (None,), None)
    return None


def bar(categories: Mapping[Category, int], nbytes: int, longest: int) -> list[tuple[str, float, float]]:
    """Return category, left end and width of each part of a bar, in percent of the bar of `longest` bytes.

    Without categories there is one part of `nbytes`, of category `unknown`.
    """
    parts: list[tuple[str, float, float]] = []
    left = 0.0
    amounts: Mapping[str, int] = {name: categories.get(name, 0) for name in CATEGORIES if categories}
    for category, amount in (amounts or {"unknown": nbytes}).items():
        width = 100 * amount / longest if longest > 0 else 0.0
        if width > 0:
            parts.append((category, round(left, 2), round(width, 2)))
            left += width
    return parts


def tick_step(top: int) -> tuple[float, int, str]:
    """Return the distance of two to five ticks up to `top` bytes, the bytes of its unit, and the unit's name."""
    unit, name = 1, "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if top < unit * 1024:
            break
        unit, name = unit * 1024, larger
    sizes = (digit * 10.0**power for power in count(-1) for digit in (1, 2, 5))
    return next(size for size in sizes if size * 5 * unit >= top), unit, name


def stretches(timeline: Timeline) -> list[Stretch]:
    """Return the stretches of the Timeline; if it names none, one for all of its events."""
    return timeline.stretches or [Stretch(first=0, phase=Phase.OTHER, step=-1)]


def _of_timeline(timeline: Timeline) -> Iterator[_Column]:
    number = min(SIDE, len(timeline.events))
    ranks = [CATEGORIES.index(timeline.sites[site].category) for site in timeline.buffer_sites]
    live, total = [0] * len(CATEGORIES), 0
    parts = stretches(timeline)
    edges = (len(timeline.events) * column // number for column in range(number + 1))
    for first, end in pairwise(edges):
        most, amounts = -1, tuple(live)
        for event in timeline.events[first:end]:
            buffer = event if event >= 0 else ~event
            difference = timeline.nbytes[buffer] if event >= 0 else -timeline.nbytes[buffer]
            live[ranks[buffer]] += difference
            total += difference
            if total > most:
                most, amounts = total, tuple(live)
        part = parts[bisect_right(parts, first, key=lambda each: each.first) - 1]
        yield _Column(amounts, (part.phase, part.step))


def _drawn(
    columns: Sequence[_Column],
    categories: Sequence[Category | None],
    num_events: int | None,
    failures: Sequence[float] = (),
) -> Picture:
    stacks = [list(accumulate(column.amounts)) for column in columns]
    totals = [stack[-1] for stack in stacks]
    top = int(max(totals) * _HEADROOM) or 1
    areas: list[Area] = []
    labels: list[Label] = []
    below = [SIDE] * len(stacks)
    for rank, category in enumerate(categories):
        edge = [round(SIDE * (1 - stack[rank] / top)) for stack in stacks]
        if any(upper < lower for upper, lower in zip(edge, below, strict=True)):
            areas.append(Area(category, _path(edge)))
            if category is not None:
                labels += _label(edge, below, spaced(category))
        below = edge
    highest = totals.index(max(totals))
    return Picture(
        areas=areas[::-1],
        labels=labels,
        ticks=list(_ticks(top)),
        spans=list(_spans(columns, totals)),
        peak=Point(SIDE * (highest + 0.5) / len(totals), SIDE * (1 - totals[highest] / top), totals[highest]),
        num_events=num_events,
        failures=list(failures),
        alive=frozenset(
            category
            for rank, category in enumerate(categories)
            if category is not None and any(column.amounts[rank] for column in columns)
        ),
    )


def _path(edge: Sequence[int]) -> str:
    """Return the SVG path of the steps of an upper edge and the ground below it; repeated heights are left out."""
    parts, height = [f"M0 {SIDE}"], SIDE
    for column, upper in enumerate(edge):
        if upper != height:
            parts.append(f"H{round(SIDE * column / len(edge))}V{upper}")
            height = upper
    return "".join([*parts, f"H{SIDE}V{SIDE}Z"]).replace("H0V", "V", 1)


def _label(edge: Sequence[int], below: Sequence[int], text: str) -> Iterator[Label]:
    """Yield the text where it has most room between two edges, if it has enough anywhere."""
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


def _spans(columns: Sequence[_Column], totals: Sequence[int]) -> Iterator[Span]:
    first = 0
    for (phase, step), members in groupby(column.part for column in columns):
        end = first + len(list(members))
        left, width = SIDE * first / len(columns), SIDE * (end - first) / len(columns)
        yield Span(left, width, phase, step, max(totals[first:end]))
        first = end


assert set(CATEGORIES) == set(Category)

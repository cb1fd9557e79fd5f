from __future__ import annotations

import re
from itertools import pairwise

import pytest

from memlint.report.model import Course, Workload
from memlint.report.page.timeline import CATEGORIES, SIDE, Picture, picture, tick_step
from tests.report.page.samples import live, made_up
from tests.report.sample import ESTIMATE, REPORT


def drawn(workload: Workload) -> Picture:
    made = picture(workload)
    assert made is not None
    return made


def edge(path: str) -> list[tuple[int, int]]:
    """The corners at which the upper edge begins a new height, from left to right."""
    assert path.startswith(f"M0 {SIDE}")
    assert path.endswith("Z")
    x, corners = 0, []
    for kind, number in re.findall(r"([HV])(\d+)", path.removeprefix(f"M0 {SIDE}")):
        if kind == "H":
            x = int(number)
        else:
            corners.append((x, int(number)))
    return corners


@pytest.mark.parametrize("num_buffers", [5, 300, 3000])
def test_the_topmost_edge_is_the_live_bytes_and_its_top_the_peak(num_buffers: int) -> None:
    workload = made_up(num_buffers).workloads[0]
    timeline = workload.timeline
    assert timeline is not None
    made = drawn(workload)

    totals = live(timeline.nbytes, timeline.events)
    columns = min(SIDE, len(totals))
    heights = dict(edge(made.areas[0].path))
    height = SIDE
    for column in range(columns):
        height = heights.get(round(SIDE * column / columns), height)
        highest = max(totals[len(totals) * column // columns : len(totals) * (column + 1) // columns])
        assert height == pytest.approx(SIDE * (1 - highest / (max(totals) * 1.08)), abs=1)
    assert made.peak.nbytes == max(totals)
    assert made.peak.x == pytest.approx(SIDE * (totals.index(max(totals)) + 0.5) / len(totals), abs=1)


def test_no_category_reaches_above_the_one_on_top_of_it() -> None:
    made = drawn(made_up(500).workloads[0])

    ranks = [CATEGORIES.index(area.category) for area in made.areas if area.category is not None]
    assert ranks == sorted(ranks, reverse=True)
    assert len(ranks) == len(made.areas)
    for above, below in pairwise(made.areas):
        upper, lower = dict(edge(above.path)), dict(edge(below.path))
        assert all(upper[x] <= lower[x] for x in upper.keys() & lower.keys())


def test_phases_lie_side_by_side_over_the_whole_width() -> None:
    for workload in (made_up(500).workloads[0], REPORT.workloads[0]):
        spans = drawn(workload).spans
        assert spans[0].x == 0
        assert spans[-1].x + spans[-1].width == pytest.approx(SIDE)
        assert all(before.x + before.width == pytest.approx(after.x) for before, after in pairwise(spans))


def test_a_course_is_drawn_where_there_is_no_timeline() -> None:
    estimate = ESTIMATE.model_copy(
        update={"course": Course(nbytes=[10, 40, 20], phases=["forward", "backward", "backward"], steps=[0, 0, 0])}
    )
    made = drawn(Workload(name="a", target="a.py", estimate=estimate))

    assert [area.category for area in made.areas] == [None]
    assert [(span.phase, round(span.width), span.highest) for span in made.spans] == [
        ("forward", 333, 10),
        ("backward", 667, 40),
    ]
    assert made.num_events is None


def test_nothing_is_drawn_where_nothing_took_memory() -> None:
    assert picture(Workload(name="a", target="a.py")) is None
    assert picture(Workload(name="a", target="a.py", estimate=ESTIMATE.model_copy(update={"course": None}))) is None


@pytest.mark.parametrize("top", [1, 900, 1023, 1024, 5 * 2**20, 700 * 2**20, 9 * 2**30, 300 * 2**30, 3 * 2**50])
def test_ticks_are_two_to_five_round_numbers(top: int) -> None:
    size, unit, _name = tick_step(top)

    assert 2 <= top / (size * unit) * (1 + 1e-9) <= 5 + 1e-6 or top < 10
    assert f"{size:e}"[0] in {"1", "2", "5"}

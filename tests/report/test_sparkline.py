"""The course of the step on one line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.report.model import Course
from memlint.report.sparkline import course_lines
from memlint.report.text_style import TextStyle

BLOCKS = "▁▂▃▄▅▆▇█"
ANSI = re.compile(r"\033\[[0-9;]*m")
PHASES = ("forward", "backward", "optimizer", "other")


def lines(course: Course, **look) -> list[str]:
    return list(course_lines(course, TextStyle(**look)))


def course(*stretches: tuple[str, int, list[int]]) -> Course:
    """A course of phases, each with its step and its bytes."""
    return Course(
        nbytes=[n for _phase, _step, nbytes in stretches for n in nbytes],
        phases=[phase for phase, _step, nbytes in stretches for _ in nbytes],
        steps=[step for _phase, step, nbytes in stretches for _ in nbytes],
    )


ONE_STEP = course(
    ("other", -1, [100, 200]),
    ("forward", 0, list(range(200, 800, 60))),
    ("backward", 0, list(range(800, 100, -50))),
    ("optimizer", 0, [400] * 12),
)
TWO_STEPS = course(*(("forward", step, [1] * 10) for step in range(2)))

courses = st.lists(
    st.tuples(st.sampled_from(PHASES), st.integers(-1, 3), st.lists(st.integers(0, 2**45), min_size=1, max_size=30)),
    min_size=1,
    max_size=8,
).map(lambda stretches: course(*stretches))


def test_bars_rise_to_the_peak_and_phases_are_named_below_their_stretches():
    heading, bars, names = lines(ONE_STEP)
    assert heading == "  Over the step, requested bytes up to 800 B"
    assert bars == "  ▁▂▂▃▄▄▅▅▆▇▇███▇▇▆▆▅▅▄▄▃▃▂▂▄▄▄▄▄▄▄▄▄▄▄▄"
    assert names == "     forward     backward    optimizer"


def test_every_step_is_told():
    heading, _bars, names = lines(TWO_STEPS)
    assert heading == "  Over 2 steps, requested bytes up to 1 B"
    assert names.split() == ["forward", "forward"]


@given(courses, st.integers(1, 120))
def test_lines_keep_to_the_width_and_only_the_peak_is_as_high_as_can_be(drawn, width):
    _heading, bars, *names = lines(drawn, width=width)
    assert all(len(line) <= max(width, 3) for line in (bars, *names))
    drawn_bars = bars[2:]
    assert set(drawn_bars) <= set(BLOCKS)
    assert len(drawn_bars) == min(len(drawn.nbytes), max(width - 2, 1))
    if max(drawn.nbytes):
        assert "█" in drawn_bars
    if len(drawn_bars) == len(drawn.nbytes):
        for bar, nbytes in zip(drawn_bars, drawn.nbytes, strict=True):
            assert abs((BLOCKS.index(bar) + 1) / 8 - nbytes / max(*drawn.nbytes, 1)) <= 1 / 8


@given(courses, st.integers(1, 120))
def test_names_never_touch_and_are_whole(drawn, width):
    for line in lines(drawn, width=width)[2:]:
        assert set(line.split()) <= {"forward", "backward", "optimizer", "setup"}


@given(courses)
def test_colour_changes_nothing_but_colour(drawn):
    assert [ANSI.sub("", line) for line in lines(drawn, color=True)] == lines(drawn)


def test_bars_and_names_of_a_phase_have_its_colour():
    _heading, bars, names = lines(ONE_STEP, color=True)
    for start in ("\033[36m", "\033[35m", "\033[34m"):
        assert start in bars
        assert start in names


def test_a_terminal_without_block_characters_gets_ascii():
    _heading, bars, _names = lines(ONE_STEP, blocks=False)
    assert bars == "  .::-==++*%%###%%**++==--::============"


@pytest.mark.parametrize("nbytes", [[], [0, 0]])
def test_nothing_live_is_no_trouble(nbytes):
    told = lines(Course(nbytes=nbytes, phases=["forward"] * len(nbytes), steps=[0] * len(nbytes)))
    assert told[1:2] == (["  ▁▁"] if nbytes else [])

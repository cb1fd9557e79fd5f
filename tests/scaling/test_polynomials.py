"""Polynomials through the points of a grid are exact, whatever their magnitude."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memlint.scaling.polynomials import Grid

COEFFICIENTS = st.lists(st.integers(-(2**20), 2**20), min_size=9, max_size=9)


def value(coefficients: list[int], x: int, y: int) -> int:
    return sum(c * x ** (n // 3) * y ** (n % 3) for n, c in enumerate(coefficients))


@given(COEFFICIENTS, st.integers(1, 50), st.integers(1, 64), st.integers(-1, 2**31), st.integers(0, 2**31))
def test_polynomials_in_two_sizes_are_exact(coefficients: list[int], first: int, step: int, x: int, y: int) -> None:
    grid = Grid((range(first, first + 3), range(first, first + 3 * step, step)))
    known = np.array([[value(coefficients, *point), 7] for point in grid.points], dtype=np.int64)
    point = (first + x, first + y * step)
    assert grid.has_lines_to(point)
    assert grid.at(known, point).tolist() == [value(coefficients, *point), 7]


def test_two_sizes_determine_a_line() -> None:
    grid = Grid((range(2, 4), range(64, 193, 64)))
    known = np.array([[10 * x + y**2, 2**60 * x] for x, y in grid.points], dtype=np.int64)
    assert grid.at(known, (70, 640)).tolist() == [700 + 640**2, 2**60 * 70]


def test_points_are_all_combinations_the_last_size_varying_fastest() -> None:
    grid = Grid((range(2, 5), range(64, 193, 64)))
    assert len(grid.axes[1]) == 3
    assert grid.points[:4] == [(2, 64), (2, 128), (2, 192), (3, 64)]
    assert len(grid.points) == 9


def test_sizes_between_steps_are_not_on_a_line() -> None:
    grid = Grid((range(2, 5), range(64, 193, 64)))
    assert grid.has_lines_to((100, 640))
    assert not grid.has_lines_to((100, 641))


def test_nothing_known_is_nothing_anywhere() -> None:
    assert Grid((range(2, 5),)).at(np.empty((3, 0, 3), np.int64), (9,)).shape == (0, 3)

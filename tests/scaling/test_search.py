"""The largest number within a limit is found in few looks, whatever the values do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.scaling.search import largest_within

MOST = 2**31 - 1


@given(st.integers(0, 2**34), st.integers(1, 2**28), st.integers(0, 2**22), st.integers(1, 2**37))
def test_of_a_line_with_steps_the_last_number_within(base: int, slope: int, jump: int, limit: int) -> None:
    looks = []

    def value(number: int) -> int:
        looks.append(number)
        return base + slope * number + jump * (number % 7)

    found = largest_within(limit, value, 1, None, MOST)
    assert len(looks) < 100
    if found.number == 0:
        assert value(1) > limit
        return
    assert value(found.number) <= limit
    assert found.is_limit == (found.number < MOST)
    if found.is_limit:
        assert value(found.number + 1) > limit


@given(st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=2, max_size=300), st.integers(0, 100))
def test_of_any_values_one_within_whose_next_is_not(values: list[int | None], limit: int) -> None:
    def value(number: int) -> int | None:
        return values[number - 1] if number <= len(values) else None

    def within(number: int) -> bool:
        found = value(number)
        return found is not None and found <= limit

    found = largest_within(limit, value, 1, None, MOST)
    assert (found.number > 0) == within(1)
    if found.number:
        assert within(found.number)
        assert not within(found.number + 1)
        assert found.is_limit


@pytest.mark.parametrize("square", [0, 60_000])
@pytest.mark.parametrize("low", [1, 68])
def test_what_grows_evenly_or_with_the_square_takes_a_handful_of_looks(square: int, low: int) -> None:
    looks = []

    def value(number: int) -> int:
        looks.append(number)
        return 3_000_000_000 + 12_345_678 * number + square * number * number

    largest = largest_within(80 << 30, value, low, None, MOST).number
    assert len(looks) <= 6
    assert value(largest) <= 80 << 30 < value(largest + 1)


def test_where_all_is_within_the_most_is_found_and_called_no_limit() -> None:
    assert largest_within(10, lambda _number: 5, 1, None, 1000) == (1000, False)


def test_between_two_known_numbers() -> None:
    assert largest_within(50, lambda number: number, 8, 64, MOST) == (50, True)
    assert largest_within(5, lambda number: number, 8, 64, MOST) == (0, False)


def test_all_neighbours_below_the_largest_are_within_too() -> None:
    def value(number: int) -> int:
        return number + (20 if number in (93, 97) else 0)

    assert largest_within(100, value, 1, None, MOST) == (100, True)
    assert largest_within(100, value, 1, None, MOST, neighbours=32) == (92, True)
    assert largest_within(100, value, 1, None, MOST, neighbours=2) == (100, True)


@given(st.integers(0, 2**34), st.integers(1, 2**28), st.integers(1, 2**37))
def test_of_costly_values_one_within_and_the_first_that_is_not_within_a_sixty_fourth(
    base: int, slope: int, limit: int
) -> None:
    def value(number: int) -> int:
        return base + slope * (number // 5)

    found = largest_within(limit, value, 1, None, MOST, is_costly=True)
    if 0 < found.number < MOST:
        assert value(found.number) <= limit
        assert value(found.number + (1 if found.is_limit else found.number // 64)) > limit


@pytest.mark.parametrize(("most_needed", "most_looks"), [(83 << 30, 10), (160 << 30, 13)])
def test_costly_values_that_stay_at_the_limit_take_a_handful_of_looks(most_needed: int, most_looks: int) -> None:
    looks = []

    def value(number: int) -> int:
        looks.append(number)
        needed = 3_000_000_000 + 850_000 * number
        return min(needed, 80 << 30) if needed < most_needed else needed  # what is cached is freed before it fails

    largest, _ = largest_within(80 << 30, value, 8192, None, MOST, is_costly=True)
    assert len(looks) <= most_looks
    assert value(largest) <= 80 << 30 < value(largest + 1 + largest // 64)

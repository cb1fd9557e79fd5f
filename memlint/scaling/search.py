"""Search for the largest number whose value stays within a limit, in few evaluations, for nearly linear values."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

_PATIENCE = 3
"""Guesses after which the range should have halved. Values may be anything: otherwise the range is bisected."""


_COARSE = 64
"""The share of a number that is not searched further where its value is costly."""
_FLAT = 16
"""The share of a number by which the next one is larger where the value is at the limit and no curve leads on; twice
as much the next time."""
_NARROW = 8
"""A range narrower than this share of its end is searched without curves, which rounded values would bend."""


class Largest(NamedTuple):
    """Result of a search: `number` is within the limit, 0 if none is; `is_limit`: the next is known not to be."""

    number: int
    is_limit: bool


def largest_within(
    limit: int,
    value: Callable[[int], int | None],
    low: int,
    high: int | None,
    most: int,
    *,
    neighbours: int = 0,
    is_costly: bool = False,
) -> Largest:
    """Search between `low`, which is within the limit, and `high`, which is not; None: up to `most`, unless one is not.

    `value` is None for an impossible number. If values do not always grow, the result is still within the limit and the
    next number is not. The `neighbours` numbers below the result, but at most an eighth of it, are within the limit as
    well; otherwise the result is one below the first that is not. If a value `is_costly`, one is looked at every
    sixty-fourth: an allocator that frees what it has cached stays at its limit over many numbers.
    """
    known: dict[int, int] = {}

    def within(number: int) -> bool:
        at_number = value(number)
        if at_number is not None:
            known[number] = at_number
        return at_number is not None and at_number <= limit

    if low < 1 or not within(low):
        return Largest(0, is_limit=high == 1)
    if high is not None:
        within(high)  # points for the guesses
    looks = num_flat = 0
    width = None if high is None else high - low
    while low < most and (high is None or high - low > _step(low, is_costly)):
        is_flat = is_costly and known[low] == limit
        guess = low + (low << num_flat) // _FLAT if is_flat else _guess(limit, known, low, high)
        num_flat += is_flat
        guess = max(guess, low + _step(low, is_costly))
        if high is None:
            guess = min(guess, most)
        elif is_flat or looks >= _PATIENCE:
            guess = (low + high) // 2
        if within(guess):
            low = guess
        else:
            high = guess
        looks += 1
        if high is not None and (width is None or 2 * (high - low) <= width):
            looks, width = 0, high - low
    lower = _below_exceptions(within, low, neighbours)
    return Largest(lower, is_limit=(high is not None and high - low == 1) or lower < low)


def _step(low: int, is_costly: bool) -> int:
    """Return how far above `low` the next number to look at is at least."""
    return max(1, low // _COARSE) if is_costly else 1


def _below_exceptions(within: Callable[[int], bool], low: int, neighbours: int) -> int:
    """Return `low`, or the number below the first of its neighbours that is not within the limit, and so on."""
    number = low - 1
    while number >= 1 and number >= low - min(neighbours, low // 8):
        if not within(number):
            low = number - 1
        number -= 1
    return low


def _guess(limit: int, known: dict[int, int], low: int, high: int | None) -> int:
    """Guess where a curve through the values nearest to the limit meets it, or else a line through the two ends."""
    closest = sorted(known, key=lambda number: abs(known[number] - limit))
    ends = [low, high] if high is not None and high in known else []
    is_narrow = high is not None and _NARROW * (high - low) < high
    for numbers in (closest[: 2 if is_narrow else 3], closest[:2], ends):
        guess = _where([(number, known[number]) for number in numbers], limit) if len(numbers) > 1 else None
        if guess is not None and low <= guess and (high is None or guess < high):
            return max(guess, low + 1)
    return 2 * low if high is None else (low + high) // 2


def _where(points: Sequence[tuple[int, int]], value: int) -> int | None:
    """Return the last number up to which a polynomial through two or three points rises to `value`.

    None if it does not.
    """
    (x, y), (second, at_second), *third = points
    slope = (at_second - y) / (second - x)
    curve = sum(((at - at_second) / (number - second) - slope) / (number - x) for number, at in third)
    slope += curve * (x - second)
    root = slope * slope + 4 * curve * (value - y)
    if root < 0 or slope + math.sqrt(root) <= 0:
        return None
    return x + math.floor(2 * (value - y) / (slope + math.sqrt(root)))

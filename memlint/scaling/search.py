"""The largest number whose value stays within a limit, in few looks, for values that grow nearly evenly."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Found(NamedTuple):
    """`number` stays within the limit, 0 if none does; `is_limit` says whether the next one is known not to."""

    number: int
    is_limit: bool


def largest_within(limit: int, value: Callable[[int], int | None], low: int, high: int | None, most: int) -> Found:
    """Search between `low`, which is within the limit, and `high`, which is not; None: up to `most`, unless one is not.

    `value` is None for a number that cannot be. Where values do not always grow, the number that is found is within the
    limit, and the next is not.
    """
    known: dict[int, int] = {}

    def within(number: int) -> bool:
        found = value(number)
        if found is not None:
            known[number] = found
        return found is not None and found <= limit

    if low < 1 or not within(low):
        return Found(0, is_limit=high == 1)
    looks = 0
    while low < most and (high is None or high - low > 1):
        looks += 1
        guess = _guess(limit, known, low, high)
        if high is None:
            guess = min(max(guess, low + 1), most)
        elif looks % 3 == 0:  # values may be anything: the range is halved now and then
            guess = (low + high) // 2
        else:
            guess = min(max(guess, low + 1), high - 1)
        if within(guess):
            low = guess
        else:
            high = guess
    return Found(low, is_limit=high is not None)


def _guess(limit: int, known: dict[int, int], low: int, high: int | None) -> int:
    """Where a line through two values, of them the closest to the limit from below, meets it."""
    others = [number for number in known if number != low]
    if not others:
        return 2 * low
    other = high if high in known else max(others, key=lambda number: (number < low, number))
    slope = (known[other] - known[low]) / (other - low)
    return low + int((limit - known[low]) / slope) if slope > 0 else 2 * low

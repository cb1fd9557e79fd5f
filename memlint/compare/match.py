"""Finding in base what stands in head: by everything at first, then by less and less."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

Thing = TypeVar("Thing")


def paired(
    base: Sequence[Thing], head: Sequence[Thing], *keys: Callable[[Thing], Hashable]
) -> list[tuple[Thing | None, Thing | None]]:
    """Each of `head` with its match in `base`, then what is left of `base`; None on the side that has no match.

    The first key pairs whatever it can, in order, the second what is left, and so on. A key of None matches nothing.
    """
    matches: dict[int, int] = {}
    left_base, left_head = list(range(len(base))), list(range(len(head)))
    for key in keys:
        waiting: defaultdict[Any, list[int]] = defaultdict(list)
        for number in left_base:
            waiting[key(base[number])].append(number)
        for number in left_head:
            told = key(head[number])
            if told is not None and waiting[told]:
                matches[number] = waiting[told].pop(0)
        taken = set(matches.values())
        left_base = [number for number in left_base if number not in taken]
        left_head = [number for number in left_head if number not in matches]
    return [*_of_head(base, head, matches), *((base[number], None) for number in left_base)]


def _of_head(
    base: Sequence[Thing], head: Sequence[Thing], matches: dict[int, int]
) -> Iterator[tuple[Thing | None, Thing | None]]:
    for number, thing in enumerate(head):
        yield (base[matches[number]] if number in matches else None), thing

"""Match the entries of head with those of base: by all their properties first, then by fewer and fewer."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from memlint.base.grouping import grouped

Thing = TypeVar("Thing")


def paired(
    base: Sequence[Thing], head: Sequence[Thing], *keys: Callable[[Thing], Hashable]
) -> list[tuple[Thing | None, Thing | None]]:
    """Pair each entry of `head` with its match in `base`, then list the rest of `base`; None stands for no match.

    The first key pairs whatever it can, in order, the second whatever remains, and so on. A key of None matches
    nothing.
    """
    matches: dict[int, int] = {}
    left_base, left_head = list(range(len(base))), list(range(len(head)))
    for key in keys:
        waiting = grouped((key(base[number]), number) for number in left_base)
        for number in left_head:
            value = key(head[number])
            if value is not None and waiting[value]:
                matches[number] = waiting[value].pop(0)
        taken = set(matches.values())
        left_base = [number for number in left_base if number not in taken]
        left_head = [number for number in left_head if number not in matches]
    of_head = [(base[matches[n]] if n in matches else None, thing) for n, thing in enumerate(head)]
    return [*of_head, *((base[number], None) for number in left_base)]

"""The allocator with its default options over a whole sequence of events, for its peaks alone.

`Allocator` takes requests one by one and shows what it does; this gives the same peaks in a third of the time, for
whoever asks for many sizes of one program.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

from memlint.collector import uncollected
from memlint.cuda.allocator import LARGE_ROUNDING, MIN_BLOCK, SMALL_SEGMENT, SMALL_SIZE
from memlint.cuda.allocator_settings import MIN_LARGE_ALLOCATION, AllocatorSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

_LARGE_SEGMENT = AllocatorSettings().large_segment_size


@uncollected()
def peaks(sizes: Sequence[int], events: Sequence[int]) -> tuple[int, int]:  # noqa: C901, PLR0912, PLR0915 (calls cost)
    """Allocated and reserved bytes at their peaks; `sizes` of storages in bytes, `events` as in Trace.

    As in PyTorch, no bytes take no block.
    """
    # A block is a list: bytes, address, its neighbours in the segment, whether it is free, and the pool it belongs to.
    # A pool is a list of its free blocks as (bytes, address, block) in order.
    SIZE, ADDRESS, PREVIOUS, NEXT, IS_FREE, _POOL = range(6)  # noqa: N806 (local names are the fastest)
    place, put = bisect_left, insort
    largest_of_small, least_of_small, least_of_large = SMALL_SIZE, MIN_BLOCK, SMALL_SIZE + 1
    small: list[tuple[int, int, list[Any]]] = []
    large: list[tuple[int, int, list[Any]]] = []
    rounded = [-(-nbytes // MIN_BLOCK) * MIN_BLOCK for nbytes in sizes]
    blocks: list[Any] = [None] * len(rounded)
    allocated = peak = reserved = 0
    for event in events:
        if event >= 0:
            size = rounded[event]
            if not size:
                continue
            pool, least = (small, least_of_small) if size <= largest_of_small else (large, least_of_large)
            index = place(pool, (size,))
            if index < len(pool):
                block = pool.pop(index)[2]
                block[IS_FREE] = False
            else:
                block = [_segment_size(size), reserved, None, None, False, pool]
                reserved += block[SIZE]
            rest = block[SIZE] - size
            if rest >= least:
                address = block[ADDRESS] + size
                following = block[NEXT]
                split = [rest, address, block, following, True, pool]
                if following is not None:
                    following[PREVIOUS] = split
                block[NEXT] = split
                block[SIZE] = size
                put(pool, (rest, address, split))
            else:
                size += rest
            blocks[event] = block
            allocated += size
            if allocated > peak:  # noqa: PLR1730 (a call of max takes longer than all of this)
                peak = allocated
        else:
            block = blocks[~event]
            if block is None:
                continue
            size, address, previous, following, _, pool = block
            allocated -= size
            if previous is not None and previous[IS_FREE]:
                del pool[place(pool, (previous[SIZE], previous[ADDRESS]))]
                previous[SIZE] = size = previous[SIZE] + size
                previous[NEXT] = following
                if following is not None:
                    following[PREVIOUS] = previous
                block, address = previous, previous[ADDRESS]
            if following is not None and following[IS_FREE]:
                del pool[place(pool, (following[SIZE], following[ADDRESS]))]
                block[SIZE] = size = size + following[SIZE]
                block[NEXT] = following = following[NEXT]
                if following is not None:
                    following[PREVIOUS] = block
            block[IS_FREE] = True
            put(pool, (size, address, block))
    return peak, reserved


def _segment_size(size: int) -> int:
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    return _LARGE_SEGMENT if size < MIN_LARGE_ALLOCATION else -(-size // LARGE_ROUNDING) * LARGE_ROUNDING

"""The allocator with its default options over a whole sequence of events, for its peaks alone.

`Allocator` takes requests one by one and shows what it does; this gives the same peaks in less than half the time, for
whoever asks for many sizes of one program.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

from memlint.cuda.allocator import LARGE_ROUNDING, MIN_BLOCK, SMALL_SEGMENT, SMALL_SIZE
from memlint.cuda.allocator_settings import MIN_LARGE_ALLOCATION, AllocatorSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

_LARGE_SEGMENT = AllocatorSettings().large_segment_size
_ADDRESS, _SIZE, _PREVIOUS, _NEXT, _IS_FREE, _POOL = range(6)


def peaks(sizes: Sequence[int], events: Sequence[int]) -> tuple[int, int]:  # noqa: C901, PLR0912, PLR0915 (calls cost)
    """Allocated and reserved bytes at their peaks; `sizes` of storages in bytes, `events` as in Trace.

    As in PyTorch, no bytes take no block.
    """
    # A block is a list: address, bytes, its neighbours in the segment, whether it is free, and the pool it belongs to.
    # A pool is a list of its free blocks as (bytes, address, block) in order.
    small: list[tuple[int, int, list[Any]]] = []
    large: list[tuple[int, int, list[Any]]] = []
    blocks: dict[int, list[Any]] = {}
    allocated = peak = reserved = 0
    for event in events:
        if event >= 0:
            nbytes = sizes[event]
            if not nbytes:
                continue
            size = -(-nbytes // MIN_BLOCK) * MIN_BLOCK
            pool, least = (small, MIN_BLOCK) if size <= SMALL_SIZE else (large, SMALL_SIZE + 1)
            index = bisect_left(pool, (size,))
            if index < len(pool):
                block = pool.pop(index)[2]
                block[_IS_FREE] = False
            else:
                block = [reserved, _segment_size(size), None, None, False, pool]
                reserved += block[_SIZE]
            rest = block[_SIZE] - size
            if rest >= least:
                address = block[_ADDRESS] + size
                following = block[_NEXT]
                split = [address, rest, block, following, True, pool]
                if following is not None:
                    following[_PREVIOUS] = split
                block[_NEXT] = split
                block[_SIZE] = size
                insort(pool, (rest, address, split))
            else:
                size += rest
            blocks[event] = block
            allocated += size
            if allocated > peak:  # noqa: PLR1730 (a call of max takes longer than all of this)
                peak = allocated
        elif sizes[~event]:
            block = blocks.pop(~event)
            pool = block[_POOL]
            size = block[_SIZE]
            allocated -= size
            previous, following = block[_PREVIOUS], block[_NEXT]
            if previous is not None and previous[_IS_FREE]:
                del pool[bisect_left(pool, (previous[_SIZE], previous[_ADDRESS]))]
                previous[_SIZE] = size = previous[_SIZE] + size
                previous[_NEXT] = following
                if following is not None:
                    following[_PREVIOUS] = previous
                block = previous
            if following is not None and following[_IS_FREE]:
                del pool[bisect_left(pool, (following[_SIZE], following[_ADDRESS]))]
                block[_SIZE] = size = size + following[_SIZE]
                block[_NEXT] = following = following[_NEXT]
                if following is not None:
                    following[_PREVIOUS] = block
            block[_IS_FREE] = True
            insort(pool, (size, block[_ADDRESS], block))
    return peak, reserved


def _segment_size(size: int) -> int:
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    return _LARGE_SEGMENT if size < MIN_LARGE_ALLOCATION else -(-size // LARGE_ROUNDING) * LARGE_ROUNDING

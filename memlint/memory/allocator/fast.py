"""Peaks of the allocator with its default options over a whole sequence of events.

Its twin `memlint.memory.allocator.reference` takes requests one by one and shows its state; this one gives the same
peaks in a fraction of the time, for many sizes of one program. tests/cuda/test_replay.py compares the two. Small and
large blocks lie in segments of their own, so that neither depends on the others; and small ones, most of which belong
to parameters, are often the same at many sizes.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memlint.base.garbage import uncollected
from memlint.memory.allocator.driver import BELOW_THE_FIRST
from memlint.memory.allocator.reference import MIN_BLOCK, SMALL_SIZE, Allocator

if TYPE_CHECKING:
    import numpy as np

_segment_size = Allocator().segment_size
_FOR_INT64 = 2**62
_NO_EVENT = -(2**62)


def peaks(
    sizes: Sequence[int] | np.ndarray,
    events: Sequence[int] | np.ndarray,
    streams: Mapping[int, int] | None = None,
    first_after_index: int | None = None,
    *,
    descending: bool = False,
) -> tuple[int, int, int]:
    """Compute the peaks of requested, allocated and reserved bytes; `sizes` of storages in bytes, `events` as in Trace.

    `streams` are those of storages that do not belong to the default stream 0. Before `first_after_index` opens,
    addresses below the first segment become free. As in PyTorch, zero bytes take no block. Addresses of segments are
    those of Driver.
    """
    import numpy as np  # noqa: PLC0415 -- who only wants to know of an Estimate does without

    order = np.asarray(events, dtype=np.int64)
    if not order.size:
        return 0, 0, 0
    requested = integers(sizes)
    if int(requested.max()) * order.size >= _FOR_INT64:
        requested = requested.astype(object)
    blocks = -(-requested // MIN_BLOCK) * MIN_BLOCK
    is_birth = order >= 0
    storages = np.where(is_birth, order, ~order)

    def most(taken: np.ndarray) -> int:
        changes = taken[storages]
        return max(0, int(np.where(is_birth, changes, -changes).cumsum().max()))

    is_small = blocks <= SMALL_SIZE
    smalls, sizes_of_blocks = np.where(is_small, blocks, 0).astype(np.int64).tobytes(), blocks.tolist()
    reserved = 0
    opening = order == first_after_index if first_after_index is not None and not descending else None
    for own in _by_stream(storages, streams):  # no segment is released, and none serves two streams
        of_storage = storages[own]
        small = _marked(order[own][is_small[of_storage] & (blocks[of_storage] > 0)], len(blocks))
        is_large = ~is_small[of_storage]
        large = _marked(order[own][is_large], len(blocks)).tolist()
        if opening is not None and (at := np.flatnonzero(opening[own])).size:
            before = _marked(order[own][: at[0]][is_large[: at[0]]], len(blocks))
            large.insert(len(before), 2 * len(blocks))
        reserved += _reserved_for_small(small.tobytes(), smalls)
        more, tails = _reserved(large, sizes_of_blocks, least=SMALL_SIZE + 1, descending=descending)
        reserved += more
        for storage, tail in tails:
            blocks[storage] += tail
    return most(requested), most(blocks), reserved


def _by_stream(storages: np.ndarray, streams: Mapping[int, int] | None) -> Iterator[Any]:
    """Yield for each stream a selection of its events out of `order`."""
    import numpy as np  # noqa: PLC0415

    if not streams:
        yield slice(None)
        return
    stream = np.zeros(int(storages.max()) + 1, dtype=np.int64)
    for storage, number in streams.items():
        if storage < len(stream):
            stream[storage] = number
    of_event = stream[storages]
    for number in np.unique(of_event):
        yield of_event == number


def _marked(order: np.ndarray, num_storages: int) -> np.ndarray:
    """Turn a storage that closes as soon as it opened into one event: its number plus `num_storages`."""
    at_once = (order[1:] == ~order[:-1]) & (order[:-1] >= 0)
    marked = order.copy()
    marked[:-1][at_once] += num_storages
    marked[1:][at_once] = _NO_EVENT
    events: np.ndarray = marked[marked != _NO_EVENT]
    return events


def integers(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Make an array of these numbers, whatever their magnitude."""
    import numpy as np  # noqa: PLC0415

    try:
        return np.asarray(values, dtype=np.int64)
    except OverflowError:
        return np.array(values, dtype=object)


@functools.lru_cache(maxsize=16)
def _reserved_for_small(events: bytes, blocks: bytes) -> int:
    """Reserved bytes of small blocks, which leave no tails; numbers are arrays of int64."""
    import numpy as np  # noqa: PLC0415

    numbers = (np.frombuffer(each, dtype=np.int64).tolist() for each in (events, blocks))
    return _reserved(*numbers, least=MIN_BLOCK)[0]


@uncollected()
def _reserved(  # noqa: C901, PLR0912, PLR0915 (calls cost)
    events: Sequence[int], sizes: Sequence[int], *, least: int, descending: bool = False
) -> tuple[int, list[tuple[int, int]]]:
    """Return the bytes of all segments after events in the form of `_marked`, and the blocks handed out with tails.

    `sizes` are those of blocks in bytes, and `least` is the smallest rest that is split off; a tail is a storage with
    the smaller excess of its block over its size. At the event that is twice the number of storages, addresses below
    the first segment become free.
    """
    # A block is a list: bytes, address, its neighbours in the segment, and a flag: free. The pool holds those that are
    # free, in order, as (bytes, address, block).
    SIZE, ADDRESS, PREVIOUS, NEXT, IS_FREE = range(5)  # noqa: N806 (local names are the fastest)
    place, put = bisect_left, insort
    pool: list[tuple[int, int, list[Any]]] = []
    blocks: list[Any] = [None] * len(sizes)
    block: list[Any]
    tails: list[tuple[int, int]] = []
    reserved, num_storages = 0, len(sizes)
    opening, below = 2 * num_storages, 0

    def extended(size: int) -> list[Any]:
        nonlocal reserved, below
        segment = _segment_size(size)
        reserved += segment
        if segment <= below:
            address, below = -below, below - segment
        else:
            address = -reserved if descending else reserved - segment
        return [segment, address, None, None, True]

    for event in events:
        if event >= num_storages:  # its block is merged again with the one it was split from
            if event == opening:
                below = BELOW_THE_FIRST
                continue
            size = sizes[event - num_storages]
            index = place(pool, (size,))
            if index == len(pool):
                block = extended(size)
                pool.append((block[SIZE], block[ADDRESS], block))
            rest = pool[index][0] - size
            if 0 < rest < least:
                tails.append((event - num_storages, rest))
        elif event >= 0:
            size = sizes[event]
            index = place(pool, (size,))
            block = pool.pop(index)[2] if index < len(pool) else extended(size)
            block[IS_FREE] = False
            rest = block[SIZE] - size
            if rest >= least:
                address = block[ADDRESS] + size
                following = block[NEXT]
                split = [rest, address, block, following, True]
                if following is not None:
                    following[PREVIOUS] = split
                block[NEXT] = split
                block[SIZE] = size
                put(pool, (rest, address, split))
            elif rest:
                tails.append((event, rest))
            blocks[event] = block
        else:
            block = blocks[~event]
            size, address, previous, following, _ = block
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
    for block in itertools.chain(filter(None, blocks), (free for _size, _address, free in pool)):
        block.clear()  # neighbours refer to each other, and would stay until Python's next search for cycles
    return reserved, tails

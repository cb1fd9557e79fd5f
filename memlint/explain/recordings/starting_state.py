"""Segments and blocks that were there when a recording began: those of its end, with every event undone.

Tails that the allocator had not split off are not recorded. In the large pool every free block is larger than 1 MiB
(rounding.SMALL_SIZE), so a gap of at most that much behind a block is a tail.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

from memlint.capture.lifetimes import end_of_life
from memlint.capture.recorded import (
    ALLOC,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Events,
    Recording,
)
from memlint.memory.allocator.rounding import MIN_BLOCK, SMALL_SEGMENT, SMALL_SIZE


class StartingSegment(NamedTuple):
    """A segment of the start."""

    address: int
    stream: int
    is_small: bool
    blocks: tuple[tuple[int, int | None], ...]
    """Size and requested bytes of each block, None for a free one."""

    @property
    def nbytes(self) -> int:
        """Bytes of the segment."""
        return sum(size for size, _ in self.blocks)


def starting_state(recording: Recording) -> tuple[StartingSegment, ...] | None:
    """Undo the events of a Recording; None if that is not possible.

    It is not with expandable segments, with pools of CUDA graphs, without segments at the end, and where the events do
    not lead to the segments, as after a pause of the recording.
    """
    unfit = any(segment.is_expandable or segment.is_private for segment in recording.segments)
    moves = {SEGMENT_MAP, SEGMENT_UNMAP}.intersection(recording.events.actions)
    if unfit or moves or (not recording.segments and not recording.starts_empty):
        return None
    undone = _undone(recording)
    if undone is None:
        return None
    segments, live, sizes = undone
    uses = _Uses(recording.events, live, end_of_life(recording))
    in_order = sorted(live)
    states = []
    position = 0
    for address, (stream, total) in sorted(segments.items()):
        end = address + total
        while position < len(in_order) and in_order[position] < address:
            return None  # a block outside of every segment
        starts = []
        while position < len(in_order) and in_order[position] < end:
            starts.append(in_order[position])
            position += 1
        blocks = _blocks(address, end, starts, live, sizes, uses, is_small=total == SMALL_SEGMENT)
        if blocks is None:
            return None
        states.append(StartingSegment(address, stream, total == SMALL_SEGMENT, blocks))
    return tuple(states) if position == len(in_order) else None


class _Undone(NamedTuple):
    """The state before the first event, by address."""

    segments: dict[int, tuple[int, int]]
    """Stream and bytes."""
    live: dict[int, int]
    """Requested bytes of blocks in use."""
    sizes: dict[int, int]
    """Sizes of those blocks that stay to the end."""


def _undone(recording: Recording) -> _Undone | None:
    """Undo all events, the last first; None where one does not lead to what was found after it."""
    segments = {each.address: (each.stream, each.nbytes) for each in recording.segments}
    in_use = [block for each in recording.segments for block in each.blocks if block.state == "active_allocated"]
    live = {block.address: block.requested for block in in_use}
    sizes = {block.address: block.nbytes for block in in_use}
    events, ends = recording.events, end_of_life(recording)
    for position in range(len(events) - 1, -1, -1):
        action, address = events.actions[position], events.addresses[position]
        was_there = True
        if action == ALLOC:
            was_there = live.pop(address, None) is not None
            sizes.pop(address, None)
        elif action == ends:
            was_there = address not in live
            live[address] = events.sizes[position]
        elif action == SEGMENT_ALLOC:
            was_there = segments.pop(address, None) is not None
        elif action == SEGMENT_FREE:
            segments[address] = events.streams[position], events.sizes[position]
        if not was_there:
            return None
    return _Undone(segments, live, sizes)


class _Uses:
    """The first allocation at each address, and the first freeing of each block of the start, as positions."""

    def __init__(self, events: Events, live: Mapping[int, int], ends: int) -> None:
        self.first: dict[int, int] = {}
        self.freed: dict[int, int] = {}
        for position, (action, address) in enumerate(zip(events.actions, events.addresses, strict=True)):
            if action == ALLOC:
                self.first.setdefault(address, position)
            elif action == ends and address in live:
                self.freed.setdefault(address, position)
        self.addresses = sorted(self.first)

    def with_tail(self, start: int, size: int, limit: int) -> int:
        """Add to a block of the large pool the tail that it has: up to `limit`, or to what came behind it first."""
        if limit - start - size <= SMALL_SIZE:
            return limit - start
        within = self.addresses[bisect_left(self.addresses, start + size) : bisect_left(self.addresses, limit)]
        freed = self.freed.get(start)
        behind = [each for each in within if freed is None or self.first[each] < freed]
        if not behind:
            return size
        tail = min(behind, key=self.first.__getitem__) - start - size
        return size + tail if tail <= SMALL_SIZE else size


def _blocks(
    start: int,
    end: int,
    starts: list[int],
    live: dict[int, int],
    sizes: dict[int, int],
    uses: _Uses,
    *,
    is_small: bool,
) -> tuple[tuple[int, int | None], ...] | None:
    blocks: list[tuple[int, int | None]] = []
    position = start
    for address, limit in zip(starts, [*starts, end][1:], strict=True):
        if address < position:
            return None
        if address > position:
            blocks.append((address - position, None))
        size = max(MIN_BLOCK, -(-live[address] // MIN_BLOCK) * MIN_BLOCK)
        if not is_small:
            size = sizes.get(address) or uses.with_tail(address, size, limit)
        blocks.append((size, live[address]))
        position = address + size
    if position > end:
        return None
    if position < end:
        blocks.append((end - position, None))
    return tuple(blocks)

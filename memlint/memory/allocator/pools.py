"""Blocks of memory and the pools of free ones: the data of the caching allocator."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False, repr=False)
class Block:
    """Consecutive bytes of a segment: in use, free, or (in expandable segments only) without memory."""

    segment: int
    """Address of the segment it lies in."""
    size: int
    stream: int
    pool: Pool
    expandable: bool = False
    address: int = 0
    mapped: bool = True
    allocated: bool = False
    requested: int = 0
    order: int = 0
    """Added to its address where free blocks of one size are compared: it grows with the age of segments, or is 0."""
    cached_at: int = 0
    """Number of searches of its pool when the block came into it."""
    previous: Block | None = None
    next: Block | None = None

    def __post_init__(self) -> None:
        self.address = self.segment
        self.mapped = not self.expandable

    def __repr__(self) -> str:
        state = "unmapped" if not self.mapped else "allocated" if self.allocated else "free"
        return f"<{state} block of {self.size} bytes at {self.address:#x}>"

    @property
    def is_whole_segment(self) -> bool:
        """True if nothing else lies in its segment."""
        return self.previous is None and self.next is None

    def and_following(self) -> Iterator[Block]:
        """Yield the block and the blocks after it in its segment."""
        block: Block | None = self
        while block is not None:
            yield block
            block = block.next

    @property
    def size_when_grown(self) -> int:
        """Size in bytes, including the unmapped ones after it."""
        following = self.next
        return self.size + (following.size if following is not None and not following.mapped else 0)

    def split(self, size: int) -> Block:
        """Keep the first `size` bytes; the rest becomes a block of its own after it."""
        rest = Block(self.segment, self.size - size, self.stream, self.pool, expandable=self.expandable)
        rest.address = self.address + size
        rest.mapped = self.mapped
        rest.order = self.order
        rest.previous, rest.next = self, self.next
        if self.next is not None:
            self.next.previous = rest
        self.next = rest
        self.size = size
        return rest


@dataclass(slots=True, eq=False)
class Pool:
    """Free blocks of one size class, by stream, each list in order of size, then of order and address."""

    is_small: bool
    num_searches: int = 0
    free: dict[int, list[tuple[int, int, Block]]] = field(default_factory=dict)
    unmapped: dict[int, list[tuple[int, Block]]] = field(default_factory=dict)
    """Unmapped blocks of expandable segments by address."""

    def add(self, block: Block) -> None:
        """Add a block that is not in use."""
        if block.mapped:
            block.cached_at = self.num_searches
            insort(self.free.setdefault(block.stream, []), (block.size, block.order + block.address, block))
        else:
            insort(self.unmapped.setdefault(block.stream, []), (block.address, block))

    def remove(self, block: Block) -> None:
        """Take a block out."""
        if block.mapped:
            sizes = self.free[block.stream]
            del sizes[bisect_left(sizes, (block.size, block.order + block.address))]
        else:
            addresses = self.unmapped[block.stream]
            del addresses[bisect_left(addresses, (block.address,))]

    def in_order(self) -> list[Block]:
        """Return free blocks by stream, size, order and address."""
        return [block for stream in sorted(self.free) for _, _, block in self.free[stream]]

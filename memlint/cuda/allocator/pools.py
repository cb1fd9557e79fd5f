"""Blocks of memory and the pools that keep the free ones: the data of the caching allocator."""

from __future__ import annotations

from bisect import bisect_left, insort


class Block:
    """Consecutive bytes of a segment: in use, free, or (expandable segments only) with no memory behind them."""

    __slots__ = (
        "address",
        "allocated",
        "cached_at",
        "expandable",
        "mapped",
        "next",
        "pool",
        "previous",
        "requested",
        "segment",
        "size",
        "stream",
    )

    def __init__(self, segment: int, size: int, stream: int, pool: Pool, *, expandable: bool = False) -> None:
        self.segment = segment
        """Address of the segment it lies in."""
        self.address = segment
        self.size = size
        self.stream = stream
        self.pool = pool
        self.expandable = expandable
        self.mapped = not expandable
        self.allocated = False
        self.requested = 0
        self.cached_at = 0
        """How often its pool had been searched when the block came into it."""
        self.previous: Block | None = None
        self.next: Block | None = None

    def __repr__(self) -> str:
        state = "unmapped" if not self.mapped else "allocated" if self.allocated else "free"
        return f"<{state} block of {self.size} bytes at {self.address:#x}>"

    @property
    def is_whole_segment(self) -> bool:
        """Whether nothing else lies in its segment."""
        return self.previous is None and self.next is None

    @property
    def size_when_grown(self) -> int:
        """Bytes with the unmapped ones behind it."""
        following = self.next
        return self.size + (following.size if following is not None and not following.mapped else 0)

    def split(self, size: int) -> Block:
        """Keep the first `size` bytes; the rest becomes a block of its own behind it."""
        rest = Block(self.segment, self.size - size, self.stream, self.pool, expandable=self.expandable)
        rest.address = self.address + size
        rest.mapped = self.mapped
        rest.previous, rest.next = self, self.next
        if self.next is not None:
            self.next.previous = rest
        self.next = rest
        self.size = size
        return rest


class Pool:
    """The free blocks of one size class, by stream, each list in order of (size, address)."""

    __slots__ = ("free", "is_small", "num_searches", "unmapped")

    def __init__(self, *, is_small: bool) -> None:
        self.is_small = is_small
        self.num_searches = 0
        self.free: dict[int, list[tuple[int, int, Block]]] = {}
        # By address, for blocks of expandable segments.
        self.unmapped: dict[int, list[tuple[int, Block]]] = {}

    def add(self, block: Block) -> None:
        """Keep a block that is not in use."""
        if block.mapped:
            block.cached_at = self.num_searches
            insort(self.free.setdefault(block.stream, []), (block.size, block.address, block))
        else:
            insort(self.unmapped.setdefault(block.stream, []), (block.address, block))

    def remove(self, block: Block) -> None:
        """Take out a block that was added."""
        if block.mapped:
            sizes = self.free[block.stream]
            del sizes[bisect_left(sizes, (block.size, block.address))]
        else:
            addresses = self.unmapped[block.stream]
            del addresses[bisect_left(addresses, (block.address,))]

    def in_order(self) -> list[Block]:
        """Free blocks by stream, size and address."""
        return [block for stream in sorted(self.free) for _, _, block in self.free[stream]]

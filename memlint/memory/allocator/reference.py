"""PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp), event by event and byte by byte.

The allocator asks the driver for segments and cuts them into blocks. Free blocks stay in one of two pools, small and
large, and serve later requests. `allocated` counts whole blocks, as `torch.cuda.memory_allocated` does; `reserved`
counts segments, as `torch.cuda.memory_reserved` does; `requested` counts the requests. Its fast twin for peaks under
default settings is `memlint.memory.allocator.fast`; tests/cuda/test_replay.py compares the two.

Private pools are not modelled, because they need a CUDA graph. Blocks that `record_stream` holds back are freed later
by the caller (memlint.memory.estimate).
"""

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

from memlint.base.units import format_nbytes
from memlint.memory.allocator.driver import Driver
from memlint.memory.allocator.pools import Block, Pool
from memlint.memory.allocator.rounding import MIN_BLOCK, SMALL_SEGMENT, SMALL_SIZE, block_size, segment_size
from memlint.memory.allocator.settings import AllocatorSettings

__all__ = ["Allocator", "AllocatorSettings", "Block", "OutOfMemory"]

DEFAULT_ADDRESS_SPACE: Final = 90 * 2**30
"""Address space in bytes of an expandable segment if the GPU is not known: 9/8 of 80 GiB."""
_ADDRESSES: Final = 2**64


class OutOfMemory(Exception):  # noqa: N818 -- PyTorch's word
    """A request that the driver could not serve even after every cached segment was released."""

    def __init__(self, nbytes: int, allocated: int, reserved: int, capacity: int | None) -> None:
        limit = "" if capacity is None else f" of {format_nbytes(capacity)}"
        super().__init__(
            f"CUDA out of memory. Tried to allocate {format_nbytes(nbytes)}: {format_nbytes(allocated)} are allocated, "
            f"{format_nbytes(reserved)}{limit} reserved"
        )
        self.nbytes = nbytes
        self.allocated = allocated
        self.reserved = reserved
        self.capacity = capacity


class Allocator:
    """The caching allocator of one GPU with `capacity` bytes for segments (None: without limit).

    `share` is the largest number of bytes that the process may reserve (None: no limit).

    `driver` models CUDA where addresses matter, as when a recorded history is replayed; it has its own capacity.

    Of free blocks of one size the one at the lowest address is taken, or if `oldest_first`, as from torch 2.13 on
    (pytorch/pytorch#183591), the one in the segment that was made first.
    """

    def __init__(
        self,
        settings: AllocatorSettings | None = None,
        capacity: int | None = None,
        driver: Driver | None = None,
        share: int | None = None,
        *,
        oldest_first: bool = False,
    ) -> None:
        self.settings = AllocatorSettings() if settings is None else settings
        self.driver = Driver(capacity) if driver is None else driver
        self.share = share
        self.requested = self.allocated = self.reserved = 0
        self.peak_requested = self.peak_allocated = self.peak_reserved = 0
        self.num_retries = 0
        """Times that all cached segments had to be released to serve a request: PyTorch's `num_alloc_retries`."""
        self._small = Pool(is_small=True)
        self._large = Pool(is_small=False)
        self._segments: dict[int, Block] = {}
        self._orders = itertools.count(0, _ADDRESSES if oldest_first else 0)
        self._expandable = self.settings.expandable_segments
        self._max_split_size = self.settings.max_split_size
        self._collect_above = 0
        if share is not None:
            self._collect_above = int(self.settings.garbage_collection_threshold * share)
        self._rounds_to_powers = any(divisions > 1 for divisions in self.settings.roundup_power2_divisions)

    def malloc(self, nbytes: int, stream: int = 0) -> Block:
        """Allocate a block of at least `nbytes`; zero bytes take a block of 512 (PyTorch never asks for zero).

        Raises OutOfMemory.
        """
        size = self.block_size(nbytes)
        pool = self._small if size <= SMALL_SIZE else self._large
        block = self._find_free(pool, size, stream)
        if block is None:
            if self._collect_above and self.reserved > self._collect_above:
                self._collect_garbage()
            block = self._extend(pool, size, stream) or self._extend_after_release(pool, size, stream)
            if block is None:
                raise OutOfMemory(nbytes, self.allocated, self.reserved, self.driver.capacity)
        if self._should_split(block, size):
            pool.add(block.split(size))
        block.allocated = True
        block.requested = nbytes
        self.requested += nbytes
        self.allocated += block.size
        self._note_peaks()
        return block

    def can_serve(self, nbytes: int, stream: int = 0) -> bool:
        """Return True if a free block is large enough for a request, whatever `max_split_size` says."""
        size = self.block_size(nbytes)
        blocks = (self._small if size <= SMALL_SIZE else self._large).free.get(stream)
        return blocks is not None and len(blocks) > 0 and blocks[-1][0] >= size

    def free(self, block: Block) -> None:
        """Return a block to its pool and merge it with free neighbours."""
        assert block.allocated, "a block is freed once"
        self.requested -= block.requested
        self.allocated -= block.size
        block.allocated = False
        block.requested = 0
        self._merge_with_neighbours(block)
        block.pool.add(block)

    def empty_cache(self) -> None:
        """Release every segment that is wholly free to the driver."""
        self._release(self._large)
        self._release(self._small)

    def block_size(self, nbytes: int) -> int:
        """Return the size to which a request is rounded up."""
        return block_size(nbytes, self.settings.divisions(nbytes) if self._rounds_to_powers else 0)

    def segment_size(self, size: int) -> int:
        """Return the size of the segment that is requested for a block of `size` bytes."""
        return segment_size(size, self.settings.large_segment_size)

    def segments(self) -> Iterator[tuple[Block, ...]]:
        """Return the blocks of each segment in order of address, blocks without memory included."""
        return (tuple(first.and_following()) for first in self._segments.values())

    def adopt(
        self, address: int, stream: int, blocks: Iterable[tuple[int, int | None]], *, is_small: bool
    ) -> list[Block]:
        """Add an existing segment, as pairs of size and requested bytes (None: free); return its blocks."""
        pool = self._small if is_small else self._large
        adopted: list[Block] = []
        end, order = address, next(self._orders)
        for size, requested in blocks:
            block = Block(address, size, stream, pool, order=order)
            block.address = end
            end += size
            if adopted:
                block.previous, adopted[-1].next = adopted[-1], block
            else:
                self._segments[address] = block
            adopted.append(block)
            self.reserved += size
            if requested is None:
                pool.add(block)
            else:
                block.allocated, block.requested = True, requested
                self.allocated += size
                self.requested += requested
        self.driver.used += end - address
        self._note_peaks()
        return adopted

    def _note_peaks(self) -> None:
        self.peak_requested = max(self.peak_requested, self.requested)
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _find_free(self, pool: Pool, size: int, stream: int) -> Block | None:
        """Take the smallest free block that fits, at the lowest address, out of its pool."""
        pool.num_searches += 1
        blocks = pool.free.get(stream)
        if not blocks:
            return None
        index = bisect_left(blocks, (size,))
        if index == len(blocks):
            return None
        if self._expandable:
            # A block that can still grow counts with the size to which it can grow.
            while (
                blocks[index][2].expandable
                and index + 1 < len(blocks)
                and blocks[index + 1][2].size_when_grown < blocks[index][2].size_when_grown
            ):
                index += 1
        block = blocks[index][2]
        limit = self._max_split_size
        if limit is not None:
            most = limit if size < limit else size + self.settings.max_non_split_rounding
            if block.size >= most:
                return None
        del blocks[index]
        return block

    def _should_split(self, block: Block, size: int) -> bool:
        rest = block.size - size
        if block.pool.is_small or self._expandable:
            return rest >= MIN_BLOCK
        return rest > SMALL_SIZE and (self._max_split_size is None or size < self._max_split_size)

    def _extend(self, pool: Pool, size: int, stream: int) -> Block | None:
        """Return a free block of at least `size` in new memory from the driver, None if there is not enough."""
        if self.share is not None and self.reserved + self.segment_size(size) > self.share:
            return None
        if self._expandable:
            return self._grow_expandable(pool, size, stream)
        nbytes = self.segment_size(size)
        address = self.driver.malloc(nbytes, stream)
        if address is None:
            return None
        self._count_reserved(nbytes)
        block = self._segments[address] = Block(address, nbytes, stream, pool, order=next(self._orders))
        return block

    def _extend_after_release(self, pool: Pool, size: int, stream: int) -> Block | None:
        """Release memory as PyTorch does before it gives up: blocks just large enough, then all cached segments."""
        if self._release_oversize(pool, size, stream):
            block = self._extend(pool, size, stream)
            if block is not None:
                return block
        self.num_retries += 1
        self.empty_cache()
        return self._extend(pool, size, stream)

    def _release_oversize(self, pool: Pool, size: int, stream: int) -> bool:
        """Release unsplittable free segments until `size` bytes are back; return False if there are not as many."""
        if self._max_split_size is None:
            return False
        needed = max(size, self._max_split_size)
        blocks = [block for _, _, block in pool.free.get(stream, ())]
        index = bisect_left(blocks, needed, key=lambda block: block.size)
        if index < len(blocks) and not blocks[index].expandable:
            self._release_segment(blocks[index])
            return True
        released = 0
        for block in reversed(blocks[:index]):
            if released >= needed or block.size < self._max_split_size:
                break
            if not block.expandable:
                released += block.size
                self._release_segment(block)
        return released >= needed

    def _collect_garbage(self) -> None:
        """Release free large segments, first those that were free for at least the average number of searches."""
        pool = self._large
        needed = self.reserved - self._collect_above
        ages = {b: pool.num_searches - b.cached_at for b in pool.in_order() if b.is_whole_segment and not b.expandable}
        released = 0
        while released < needed and ages:
            average = sum(ages.values()) / len(ages)
            for block in [block for block, age in ages.items() if age >= average]:
                del ages[block]
                released += block.size
                self._release_segment(block)

    def _release(self, pool: Pool) -> None:
        for block in pool.in_order():
            if block.expandable:
                self._unmap(block)
            elif block.is_whole_segment:
                self._release_segment(block)

    def _release_segment(self, block: Block) -> None:
        block.pool.remove(block)
        del self._segments[block.address]
        self.reserved -= block.size
        self.driver.free(block.address, block.size)

    def _merge_with_neighbours(self, block: Block) -> None:
        """Merge `block`, which is in no pool, with neighbours that are free as it is."""
        previous, following = block.previous, block.next
        if previous is not None and not previous.allocated and previous.mapped == block.mapped:
            previous.pool.remove(previous)
            block.address = previous.address
            block.size += previous.size
            block.previous = previous.previous
            if block.previous is None:
                self._segments[block.segment] = block
            else:
                block.previous.next = block
        if following is not None and not following.allocated and following.mapped == block.mapped:
            following.pool.remove(following)
            block.size += following.size
            block.next = following.next
            if block.next is not None:
                block.next.previous = block

    def _count_reserved(self, nbytes: int) -> None:
        self.reserved += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    # Expandable segments: one range of addresses for each stream and pool, with memory mapped behind it as needed.

    def _unit(self, pool: Pool) -> int:
        return SMALL_SEGMENT if pool.is_small else self.settings.large_segment_size

    def _grow_expandable(self, pool: Pool, size: int, stream: int) -> Block | None:
        block = self._find_growable(pool, size, stream) or self._reserve_addresses(pool, size, stream)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            following = block.next
            assert following is not None, "a growable block has addresses behind it"
            if not self._map(following, min(size - block.size, following.size)):
                return None
            # Mapping merged the two, under the later block's name.
            block = following
        pool.remove(block)
        return block

    def _find_growable(self, pool: Pool, size: int, stream: int) -> Block | None:
        """Return the block at the lowest address from which `size` bytes of addresses are free or unmapped."""
        for _, unmapped in pool.unmapped.get(stream, ()):
            previous = unmapped.previous
            first = unmapped if previous is None or previous.allocated else previous
            growable = itertools.takewhile(lambda block: not block.allocated, first.and_following())
            if any(available >= size for available in itertools.accumulate(block.size for block in growable)):
                return first
        return None

    def _reserve_addresses(self, pool: Pool, size: int, stream: int) -> Block:
        """Reserve addresses for 9/8 of the GPU's memory, as PyTorch does: one range serves all that fits on the GPU."""
        unit = self._unit(pool)
        capacity = self.driver.capacity
        least = max(DEFAULT_ADDRESS_SPACE if capacity is None else capacity + capacity // 8, size)
        nbytes = -(-least // unit) * unit
        address = self.driver.reserve_addresses(nbytes, stream)
        block = self._segments[address] = Block(
            address, nbytes, stream, pool, expandable=True, order=next(self._orders)
        )
        pool.add(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        """Map memory to the first `size` bytes of an unmapped block, in whole units; return False if none is left."""
        unit = self._unit(block.pool)
        nbytes = -(-size // unit) * unit
        if not self.driver.map(block.address, nbytes):
            return False
        block.pool.remove(block)
        if nbytes < block.size:
            block.pool.add(block.split(nbytes))
        block.mapped = True
        self._count_reserved(nbytes)
        self._merge_with_neighbours(block)
        block.pool.add(block)
        return True

    def _unmap(self, block: Block) -> None:
        """Unmap the whole units inside a free block; its ends outside of them stay mapped."""
        pool = block.pool
        unit = self._unit(pool)
        offset = block.address - block.segment
        first = block.segment - (-offset // unit) * unit
        end = block.segment + (offset + block.size) // unit * unit
        if first >= end:
            return
        pool.remove(block)
        if first > block.address:
            middle = block.split(first - block.address)
            pool.add(block)
            block = middle
        if end < block.address + block.size:
            pool.add(block.split(end - block.address))
        block.mapped = False
        self.reserved -= block.size
        self.driver.unmap(block.address, block.size)
        self._merge_with_neighbours(block)
        if block.is_whole_segment:
            del self._segments[block.segment]
        else:
            pool.add(block)

"""`torch.cuda.memory`: statistics, snapshots and their history, answered from the caching allocator's model.

PyTorch's own Python code runs; the functions of `torch._C` that it calls are replaced.
"""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from memlint.accelerator.ledger import Entry, Ledger
from memlint.accelerator.private import accelerator_functions, cuda_functions
from memlint.base.ownership import is_memlint
from memlint.cuda.simulated import Simulated
from memlint.memory.allocator.reference import AllocatorSettings, Block, OutOfMemory
from memlint.memory.allocator.rounding import SMALL_SEGMENT
from memlint.memory.allocator.snapshot import Frames, RecordingAllocator, frame, snapshot
from memlint.memory.context import with_context

_POOLS = ("all", "small_pool", "large_pool")
_COUNTED = (
    *("allocation", "allocated_bytes", "requested_bytes", "segment", "reserved_bytes"),
    *("inactive_split", "inactive_split_bytes"),
)
_SAME = {"active": "allocation", "active_bytes": "allocated_bytes"}
"""Statistics that equal others here; they differ while streams still use freed memory, which is not modelled."""


@dataclass(slots=True)
class _Count:
    """One of the allocator's statistics."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add(self, change: int) -> None:
        self.current += change
        self.peak = max(self.peak, self.current)
        if change > 0:
            self.allocated += change
        else:
            self.freed -= change

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


class _CountingAllocator(RecordingAllocator):
    """A RecordingAllocator that keeps the counts of `torch.cuda.memory_stats`."""

    def __init__(self, settings: AllocatorSettings, capacity: int | None, share: int | None) -> None:
        super().__init__(settings, capacity, share)
        self.is_recording = False
        self.counts = {name: {pool: _Count() for pool in _POOLS} for name in _COUNTED}

    def _add(self, change: int, *, is_small: bool, **amounts: int) -> None:
        for name, amount in amounts.items():
            pools = self.counts[name]
            pools["all"].add(change * amount)
            pools["small_pool" if is_small else "large_pool"].add(change * amount)

    def open(self, buffer: int, nbytes: int, frames: Frames, stream: int = 0, **facts: Any) -> Block:
        block = super().open(buffer, nbytes, frames, stream, **facts)
        amounts = {"allocation": 1, "allocated_bytes": block.size, "requested_bytes": block.requested}
        self._add(1, is_small=block.pool.is_small, **amounts)
        rest = block.next if block.next is not None and not block.next.allocated else None
        behind = block.next if rest is None else rest.next
        self._count_split(block, -1, block.size + (rest.size if rest else 0), was=bool(block.previous or behind))
        if rest is not None:
            self._count_split(block, 1, rest.size)
        return block

    def close(self, buffer: int, frames: Frames) -> None:
        block = self.live[buffer]
        amounts = {"allocation": 1, "allocated_bytes": block.size, "requested_bytes": block.requested}
        self._add(-1, is_small=block.pool.is_small, **amounts)
        nbytes, ends = block.size, []
        for neighbour, following in ((block.previous, False), (block.next, True)):
            if neighbour is not None and not neighbour.allocated:
                self._count_split(block, -1, neighbour.size)
                nbytes += neighbour.size
                ends.append(neighbour.next if following else neighbour.previous)
            else:
                ends.append(neighbour)
        self._count_split(block, 1, nbytes, was=any(ends))
        super().close(buffer, frames)

    def _count_split(self, block: Block, change: int, nbytes: int, *, was: bool = True) -> None:
        """Count a free part of a segment that is in use elsewhere; as in PyTorch, expandable segments have none."""
        if was and not block.expandable:
            self._add(change, is_small=block.pool.is_small, inactive_split=1, inactive_split_bytes=nbytes)

    def _record_segment(self, action: str, address: int, nbytes: int) -> None:
        change = 1 if action in ("segment_alloc", "segment_map") else -1
        self._add(change, is_small=nbytes == SMALL_SEGMENT, segment=1, reserved_bytes=nbytes)
        super()._record_segment(action, address, nbytes)


class Statistics:
    """The answers of `torch.cuda.memory_*`: the ledger's events so far, replayed through the allocator.

    A GPU, or a share of it, that is too small for the program does not stop the program: the Report says how much it
    would take.
    """

    def __init__(self, simulation: Simulated) -> None:
        self._simulation, self._ledger = simulation, simulation.ledger
        self._settings = simulation.allocator
        self._device = simulation.device
        self._total_nbytes = simulation.device.total_nbytes
        self._fraction = self._settings.memory_fraction
        self._stacks: dict[int, Frames] = {}
        """Stacks of the births while the program recorded its history."""
        self._most_entries = sys.maxsize
        self._allocator: _CountingAllocator | None = None
        """Allocator, made when the program first asks: until then the program may set which modules CUDA loads."""

    def _context(self) -> int:
        """Bytes of the CUDA context; the environment is read now, as for the Estimate."""
        return with_context(self._device).context_nbytes if self._device.is_cuda else 0

    def _begin(self, capacity: int | None, share: int | None) -> _CountingAllocator:
        self._simulation.reads_allocator = True
        self._allocator = _CountingAllocator(self._settings, capacity, share)
        self._position = 0
        self._num_emptied = 0
        return self._allocator

    def now(self) -> _CountingAllocator:
        """Return the allocator after all events so far."""
        allocator = self._allocator
        if allocator is None:
            share = None if self._fraction >= 1 else int(self._fraction * self._total_nbytes)
            allocator = self._begin(self._total_nbytes - self._context() if self._device.is_cuda else None, share)
        try:
            self._advance(allocator)
        except OutOfMemory:
            allocator = self._begin(None, None)
            self._advance(allocator)
        return allocator

    def _advance(self, allocator: _CountingAllocator) -> None:
        events, births, emptied = self._ledger.events, self._ledger.births, self._ledger.emptied
        for position in range(self._position, len(events)):
            if emptied[self._num_emptied : self._num_emptied + 1] == [position]:
                self._empty(allocator)
            event, allocator.time = events[position], position
            if event < 0:
                if ~event in allocator.live:
                    allocator.close(~event, [])
            elif births[event].nbytes:  # as in PyTorch, zero bytes take no block
                stream = self._ledger.streams.get(event, 0)
                if event == self._ledger.first_after_index:
                    allocator.open_below(stream)
                allocator.open(event, births[event].nbytes, self._stacks.get(event, []), stream)
        self._position = len(events)
        if len(emptied) > self._num_emptied:
            self._empty(allocator)

    def _empty(self, allocator: _CountingAllocator) -> None:
        allocator.allocator.empty_cache()
        self._num_emptied += 1

    @property
    def free(self) -> int:
        """Bytes of the GPU that neither the allocator nor the CUDA context has; 0 if the program is too large."""
        return max(self._total_nbytes - self._context() - self.now().allocator.reserved, 0)

    def patches(self) -> dict[str, Callable[..., Any]]:
        """Return the replaced functions of PyTorch's extension module by name."""
        of_accelerator: dict[str, Callable[..., Any]] = {
            "getDeviceStats": self._as_dict,
            "resetPeakStats": self._reset_peak,
            "resetAccumulatedStats": self._reset_accumulated,
            "emptyCache": self._empty_cache,
            "getMemoryInfo": lambda *_: (self.free, self._total_nbytes),
        }
        of_cuda: dict[str, Callable[..., Any]] = {
            "memoryStats": self._as_dict,
            "resetPeakMemoryStats": self._reset_peak,
            "resetAccumulatedMemoryStats": self._reset_accumulated,
            "emptyCache": self._empty_cache,
            "memorySnapshot": self._snapshot,
            "record_memory_history": lambda on, _context, _stacks, most, *_: self._record_history(on, most),
            "record_memory_history_legacy": lambda on, _context, most, *_: self._record_history(on, most),
            "isHistoryEnabled": lambda: self.now().is_recording,
            "setMemoryFraction": self._set_fraction,
            "getMemoryFraction": lambda *_: self._fraction,
            "getAllocatorBackend": lambda: "native",
        }
        return {**accelerator_functions(of_accelerator), **cuda_functions(of_cuda)}

    def _as_dict(self, *_: Any) -> dict[str, Any]:
        allocator = self.now()
        counts = {
            name: {pool: count.as_dict() for pool, count in pools.items()} for name, pools in allocator.counts.items()
        }
        return {
            **counts,
            **{name: counts[other] for name, other in _SAME.items()},
            "oversize_allocations": _Count().as_dict(),
            "oversize_segments": _Count().as_dict(),
            "num_alloc_retries": allocator.allocator.num_retries,
            "num_ooms": 0,
            "num_sync_all_streams": 0,
            "num_device_alloc": counts["segment"]["all"]["allocated"],
            "num_device_free": counts["segment"]["all"]["freed"],
            "max_split_size": -1 if self._settings.max_split_size is None else self._settings.max_split_size,
        }

    def _every_count(self) -> list[_Count]:
        return [count for pools in self.now().counts.values() for count in pools.values()]

    def _reset_peak(self, *_: Any) -> None:
        for count in self._every_count():
            count.peak = count.current

    def _reset_accumulated(self, *_: Any) -> None:
        for count in self._every_count():
            count.allocated = count.freed = 0

    def _empty_cache(self) -> None:
        self._ledger.empty_cache()

    def _set_fraction(self, fraction: float, *_: Any) -> None:
        self._fraction = fraction

    # --- history

    def _snapshot(self, *_: Any) -> dict[str, Any]:
        allocator = self.now()
        del allocator.trace[: -self._most_entries]
        return snapshot([allocator], "")

    def _record_history(self, enabled: object, most_entries: int) -> None:
        """Start or stop keeping the Python stack of each new storage."""
        self.now().is_recording = bool(enabled)
        self._most_entries = most_entries
        if enabled:
            self._ledger.open = self._open  # type: ignore[method-assign]  # of this ledger alone
        else:
            self._ledger.__dict__.pop("open", None)

    def _open(self, *args: Any, **kwargs: Any) -> Entry:
        self._stacks[len(self._ledger.births)] = _stack(sys._getframe(1))
        return Ledger.open(self._ledger, *args, **kwargs)


def _stack(innermost: FrameType | None) -> Frames:
    """Return the program's lines that are running, innermost first."""
    frames, current = [], innermost
    while current is not None:
        if not _is_ours(current.f_code):
            code = current.f_code
            frames.append(frame(code.co_filename, current.f_lineno, code.co_name))
        current = current.f_back
    return frames


@functools.cache
def _is_ours(code: CodeType) -> bool:
    return is_memlint(code.co_filename)

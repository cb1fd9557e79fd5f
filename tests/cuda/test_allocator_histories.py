"""The allocator model against histories recorded on GPUs: every address, every segment, every retry."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memlint.memory.allocator.driver import Driver
from memlint.memory.allocator.reference import Allocator, AllocatorSettings, Block
from memlint.memory.allocator.rounding import SMALL_SEGMENT, SMALL_SIZE

DIRECTORY = Path(__file__).parents[2] / "fixtures" / "histories"

Event = list[Any]


class RecordedDriver(Driver):
    """Gives new segments their recorded addresses and writes down everything it is asked for."""

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self.addresses: list[int] = []
        """Recorded addresses of the segments the next request is to get."""
        self.asked: list[Event] = []

    def malloc(self, nbytes: int, stream: int) -> int | None:
        if not self._take(nbytes):
            return None
        address = self.addresses.pop(0) if self.addresses else -1
        self.asked.append(["segment_alloc", address, nbytes, stream])
        return address

    def free(self, address: int, nbytes: int) -> None:
        super().free(address, nbytes)
        self.asked.append(["segment_free", address, nbytes])

    def reserve_addresses(self, nbytes: int, stream: int) -> int:
        return self.addresses[0]

    def map(self, address: int, nbytes: int) -> bool:
        self.asked.append(["segment_map", address, nbytes])
        return super().map(address, nbytes)


@dataclass
class History:
    """One file of the directory; see its README for the fields."""

    name: str
    starts_empty: bool
    settings: AllocatorSettings
    peaks: dict[str, int]
    events: list[Event]
    segments_at_end: list[list[Any]]

    @classmethod
    def read(cls, name: str) -> History:
        with gzip.open(DIRECTORY / f"{name}.json.gz", "rt") as file:
            record = json.load(file)
        conf = (record["allocator_settings"] or {"conf": ""})["conf"]
        return cls(
            name,
            record["starts_empty"],
            AllocatorSettings.parse(conf),
            record["peaks"],
            record["events"],
            record["segments_at_end"],
        )

    @property
    def requests(self) -> list[Event]:
        """The events of the program: alloc and free."""
        return [event for event in self.events if event[0] in {"alloc", "free"}]

    def segments_at_start(self) -> dict[int, tuple[int, int, list[tuple[int, int | None]]]]:
        """For each address: stream, total bytes, and (size, requested or None) of every block."""
        if self.starts_empty:
            return {}
        segments, live, known_sizes = self._undone()
        first_use = self._first_allocations(live)
        at_start = {}
        for address, (stream, total) in segments.items():
            end = address + total
            starts = sorted(start for start in live if address <= start < end)
            blocks: list[tuple[int, int | None]] = []
            position = address
            for start, limit in zip(starts, [*starts[1:], end][: len(starts)], strict=True):
                if start > position:
                    blocks.append((start - position, None))
                size = max(512, -(-live[start] // 512) * 512)
                if total != SMALL_SEGMENT:
                    size = known_sizes.get(start) or _with_tail(start, size, limit, first_use)
                blocks.append((size, live[start]))
                position = start + size
            if position < end:
                blocks.append((end - position, None))
            at_start[address] = (stream, total, blocks)
        return at_start

    def _undone(self) -> tuple[dict[int, tuple[int, int]], dict[int, int], dict[int, int]]:
        """By address, after every event is undone: segments, requested bytes of live blocks, block sizes if known."""
        segments = {address: (stream, total) for address, total, stream, *_ in self.segments_at_end}
        live: dict[int, int] = {}
        known_sizes: dict[int, int] = {}
        for address, *_, blocks in self.segments_at_end:
            start = address
            for size, requested, state in blocks:
                if state == "active_allocated":
                    live[start], known_sizes[start] = requested, size
                start += size
        for kind, address, nbytes, stream, *_ in reversed(self.events):
            if kind == "alloc":
                del live[address]
                known_sizes.pop(address, None)
            elif kind == "free":
                live[address] = nbytes
            elif kind == "segment_alloc":
                del segments[address]
            elif kind == "segment_free":
                segments[address] = (stream, nbytes)
        return segments, live, known_sizes

    def _first_allocations(self, live_at_start: dict[int, int]) -> list[tuple[int, set[int]]]:
        """Addresses allocated for the first time, with the blocks of the start that had been freed by then."""
        first: dict[int, set[int]] = {}
        freed: set[int] = set()
        for kind, address, *_ in self.events:
            if kind == "alloc" and address not in first:
                first[address] = set(freed)
            elif kind == "free" and address in live_at_start:
                freed.add(address)
        return list(first.items())


def _with_tail(start: int, size: int, next_start: int, first_use: list[tuple[int, set[int]]]) -> int:
    """Add to a large block the tail that was too small to split off (1 MiB at most), where there is a sign of one.

    No free block of the large pool is that small, so a gap up to the next block is a tail; and so is a gap before the
    first allocation behind the block while it was live.
    """
    if next_start - start - size <= SMALL_SIZE:
        return next_start - start
    for address, freed in first_use:
        if start + size <= address < next_start and start not in freed:
            return address - start if address - start - size <= SMALL_SIZE else size
    return size


@dataclass
class Replay:
    """A history run through the Allocator; the mismatches are what the two disagree about."""

    history: History
    capacity: int | None = None
    mismatches: list[str] = field(default_factory=list)
    num_allocations: int = 0
    num_segments: int = 0
    num_released: int = 0
    num_empty_cache: int = 0

    def __post_init__(self) -> None:
        self.driver = RecordedDriver(self.capacity)
        self.allocator = Allocator(self.history.settings, driver=self.driver)
        self.live: dict[int, Block] = {}
        for address, (stream, total, blocks) in self.history.segments_at_start().items():
            for block in self.allocator.adopt(address, stream, blocks, is_small=total == SMALL_SEGMENT):
                if block.allocated:
                    self.live[block.address] = block

    def run(self) -> Replay:
        """Feed the requests; new segments get their recorded address, everything else is predicted."""
        recorded: list[Event] = []
        for event in self.history.events:
            kind, address, nbytes, stream, *_ = event
            if kind.startswith("segment"):
                recorded.append(event[:4] if kind == "segment_alloc" else event[:3])
                continue
            if recorded and recorded[0][0] == "segment_free" and self.capacity is None:
                self.allocator.empty_cache()
                self.num_empty_cache += 1
            self.driver.addresses = [e[1] for e in recorded if e[0] != "segment_free"]
            if kind == "alloc":
                block = self.allocator.malloc(nbytes, stream)
                self.num_allocations += 1
                self._compare(f"address of {nbytes} bytes", block.address, address)
                self.live[address] = block
            else:
                block = self.live.pop(address)
                self._compare("requested bytes of a freed block", block.requested, nbytes)
                self.allocator.free(block)
            self._compare(f"segments before {event[:4]}", self.driver.asked, recorded)
            self.num_segments += sum(e[0] != "segment_free" for e in recorded)
            self.num_released += sum(e[0] == "segment_free" for e in recorded)
            self.driver.asked, recorded = [], []
        if recorded:
            self.allocator.empty_cache()
            self._compare("segments at the end", self.driver.asked, recorded)
            self.num_released += len(recorded)
            self.num_empty_cache += 1
        return self

    def _compare(self, what: str, predicted: object, recorded: object) -> None:
        if predicted != recorded:
            self.mismatches.append(f"{what}: predicted {predicted}, recorded {recorded}")


def blocks_at_end(history: History) -> list[tuple[int, int, bool]]:
    """Address, size and whether it is in use, of every recorded block."""
    blocks = []
    for address, *_, recorded in history.segments_at_end:
        start = address
        for size, _, state in recorded:
            blocks.append((start, size, state == "active_allocated"))
            start += size
    return sorted(blocks)


def blocks_of(allocator: Allocator) -> list[tuple[int, int, bool]]:
    """The same of the model."""
    return sorted(
        (block.address, block.size, block.allocated)
        for blocks in allocator.segments()
        for block in blocks
        if block.mapped
    )


NAMES = sorted(path.name.removesuffix(".json.gz") for path in DIRECTORY.glob("*.json.gz"))
WITHOUT_ADDRESSES = "resnet18-train-b8-fp32"
WITH_ADDRESSES = [name for name in NAMES if name != WITHOUT_ADDRESSES]

# 39 retries of this run fit one capacity between 20.973 GiB (the most that was reserved) and 21.008 GiB (the least
# that was refused).
CAPACITY = {"allocator-oom-retries": int(20.99 * 2**30)}


def test_no_history_is_missing() -> None:
    assert len(NAMES) == 17


@pytest.mark.parametrize("name", WITH_ADDRESSES)
def test_replay_finds_every_recorded_address_segment_and_release(name: str) -> None:
    replay = Replay(History.read(name), CAPACITY.get(name)).run()
    assert replay.mismatches == []
    assert replay.num_allocations == sum(event[0] == "alloc" for event in replay.history.events)
    assert blocks_of(replay.allocator) == blocks_at_end(replay.history)


@pytest.mark.parametrize("name", WITH_ADDRESSES)
def test_replay_reaches_the_recorded_peaks(name: str) -> None:
    allocator = Replay(History.read(name), CAPACITY.get(name)).run().allocator
    peaks = {
        "requested": allocator.peak_requested,
        "allocated": allocator.peak_allocated,
        "reserved": allocator.peak_reserved,
    }
    assert peaks == History.read(name).peaks


def test_replay_retries_where_the_gpu_was_full() -> None:
    name = "allocator-oom-retries"
    replay = Replay(History.read(name), CAPACITY[name]).run()
    assert replay.allocator.num_retries == 39
    assert replay.num_released == 579


def test_replay_empties_the_cache_where_the_program_did() -> None:
    replay = Replay(History.read("allocator-empty-cache")).run()
    assert replay.num_released == 420
    assert replay.num_empty_cache > 1


@pytest.mark.parametrize(
    "name",
    [name for name in WITH_ADDRESSES if name not in CAPACITY and History.read(name).starts_empty],
)
def test_made_up_addresses_give_the_recorded_peaks(name: str) -> None:
    history = History.read(name)
    allocator = Allocator(history.settings)
    live = {}
    for kind, address, nbytes, stream, *_ in history.requests:
        if kind == "alloc":
            live[address] = allocator.malloc(nbytes, stream)
        else:
            allocator.free(live.pop(address))
    assert allocator.peak_requested == history.peaks["requested"]
    assert allocator.peak_allocated == history.peaks["allocated"]
    assert allocator.peak_reserved == history.peaks["reserved"]


def test_resnet18_request_stream_gives_the_recorded_peak() -> None:
    history = History.read(WITHOUT_ADDRESSES)
    allocator = Allocator()
    live = {}
    for kind, identity, nbytes, *_ in history.requests:
        if kind == "alloc":
            live[identity] = allocator.malloc(nbytes)
        else:
            allocator.free(live.pop(identity))
    assert allocator.peak_requested == history.peaks["requested"]

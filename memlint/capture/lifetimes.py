"""Allocations of a Recording with their beginnings and ends, and the bytes that are alive in between."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from memlint.capture.recorded import ALLOC, FREE, FREE_REQUESTED, OOM, Column, Recording
from memlint.memory.records import Category

_IN_USE: Final = "active_allocated"
BEFORE: Final = -1
"""`born` of what was there before the recording."""


def _longs() -> Column:
    return array("q")


@dataclass(slots=True)
class Lifetimes:
    """Columns of allocations: first those from before the recording, by address, then in order of birth."""

    nbytes: Column = field(default_factory=_longs)
    born: Column = field(default_factory=_longs)
    """Position in the events; BEFORE if it was there before."""
    died: Column = field(default_factory=_longs)
    """Position in the events; their number if it outlives them."""
    streams: Column = field(default_factory=_longs)
    sites: Column = field(default_factory=_longs)
    addresses: Column = field(default_factory=_longs)
    categories: dict[int, Category] = field(default_factory=dict)
    """By number, of what was there before, if the file has them."""
    num_before: int = 0
    num_events: int = 0

    def __len__(self) -> int:
        return len(self.nbytes)

    def add(self, nbytes: int, born: int, stream: int, site: int, address: int) -> int:
        """Append an allocation that nothing has freed; return its number."""
        self.nbytes.append(nbytes)
        self.born.append(born)
        self.died.append(self.num_events)
        self.streams.append(stream)
        self.sites.append(site)
        self.addresses.append(address)
        return len(self.nbytes) - 1

    def alive_at(self, position: int) -> Iterator[int]:
        """Yield the numbers of allocations that are alive after the event at `position`; BEFORE: at the start."""
        born, died = self.born, self.died
        return (number for number in range(len(born)) if born[number] <= position < died[number])


@dataclass(frozen=True, slots=True)
class Course:
    """The requested bytes that are alive during a Recording."""

    peak: int
    """Position of the first event with the most; BEFORE if that is the start."""
    nbytes_at_peak: int
    failures: tuple[int, ...]
    """Positions of events `oom`."""
    nbytes_at_failures: tuple[int, ...]


def end_of_life(recording: Recording) -> int:
    """Return the action that makes memory free: FREE_REQUESTED in recordings that have no other."""
    return FREE if FREE in recording.events.actions else FREE_REQUESTED


def lifetimes(recording: Recording) -> Lifetimes:
    """Pair the allocations of a Recording with their ends, by address."""
    events = recording.events
    ends = end_of_life(recording)
    result = Lifetimes(num_events=len(events))
    alive: dict[int, int] = {}
    for address, nbytes, stream, site, category in _before(recording, ends):
        number = alive[address] = result.add(nbytes, BEFORE, stream, site, address)
        if category is not Category.OTHER:
            result.categories[number] = category
    result.num_before = len(result)
    columns = zip(events.actions, events.addresses, events.sizes, events.streams, events.sites, strict=True)
    for position, (action, address, nbytes, stream, site) in enumerate(columns):
        if action == ALLOC:
            alive[address] = result.add(nbytes, position, stream, site, address)
        elif action == ends:
            freed = alive.pop(address, None)
            if freed is not None:
                result.died[freed] = position
    return result


def _before(recording: Recording, ends: int) -> list[tuple[int, int, int, int, Category]]:
    """Address, bytes, stream, site and category of what was there before, in order of streams and addresses."""
    events = recording.events
    opened: set[int] = set()
    before = []
    for action, address, nbytes, stream in zip(
        events.actions, events.addresses, events.sizes, events.streams, strict=True
    ):
        if action == ALLOC:
            opened.add(address)
        elif action == ends:
            if address in opened:
                opened.discard(address)
            else:
                before.append((address, nbytes, stream, -1, Category.OTHER))
    before += (
        (block.address, block.requested, segment.stream, block.site, block.category)
        for segment in recording.segments
        for block in segment.blocks
        if not block.is_free and block.address not in opened and (block.state == _IN_USE or ends == FREE)
    )
    return sorted(before, key=lambda each: (each[2], each[0]))


def course(recording: Recording, alive: Lifetimes) -> Course:
    """Fold the events of a Recording over what was there before."""
    events = recording.events
    ends = end_of_life(recording)
    live = most = sum(alive.nbytes[: alive.num_before])
    peak = BEFORE
    known = set(alive.addresses[: alive.num_before])
    failures, nbytes_at = [], []
    for position, (action, address, nbytes) in enumerate(
        zip(events.actions, events.addresses, events.sizes, strict=True)
    ):
        if action == ALLOC:
            live += nbytes
            known.add(address)
            if live > most:
                most, peak = live, position
        elif action == ends and address in known:
            known.discard(address)
            live -= nbytes
        elif action == OOM:
            failures.append(position)
            nbytes_at.append(live)
    return Course(peak, most, tuple(failures), tuple(nbytes_at))

"""The requests of a Recording, answered by the allocator under other settings."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

from memlint.base.errors import TargetError
from memlint.base.garbage import uncollected
from memlint.capture.lifetimes import BEFORE, end_of_life, lifetimes
from memlint.capture.recorded import ALLOC, GROWS, OOM, RELEASES, SEGMENT_ALLOC, Recording
from memlint.explain.recordings.starting_state import StartingSegment, starting_state
from memlint.memory.allocator.driver import Driver
from memlint.memory.allocator.reference import Allocator, AllocatorSettings, Block, OutOfMemory

_ALIGNMENT: Final = 2**21


class Replayed(NamedTuple):
    """The allocator after the requests of a Recording."""

    requested: int
    allocated: int
    reserved: int
    """Most bytes at once."""
    num_retries: int
    failed_at: int | None
    """Position of the event whose request it could not serve; BEFORE: of what was there before; None: it served all."""
    at_end: tuple[int, int]
    """Allocated and reserved bytes after the last event, or where it failed."""
    free_blocks: tuple[tuple[int, int, bool], ...]
    """Bytes and stream of each free block then, and whether it is of the pool of small ones; the largest first."""
    num_moved: int
    """Number of blocks that do not lie where they were recorded."""
    oldest_first: bool
    """True if free blocks were taken by the age of their segments, as from torch 2.13 on, and not by address."""


class Program:
    """The calls of a program to the allocator in a Recording: requests, ends, and calls of `empty_cache`."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.start: tuple[StartingSegment, ...] | None = starting_state(recording)
        """None if it is not known how lay what was there before."""
        self.before = [] if self.start is not None else _before(recording)
        """Bytes, stream and address of what was there before, if it is not known how it lay."""
        emptied, released, either = _releases(recording)
        calls = self._calls_among(either, emptied | released) if either else set()
        self.emptied = frozenset(emptied | calls)
        """Positions before which the program emptied the cache."""
        self.released = frozenset(released | (either.keys() - calls))
        """Positions before which the allocator released segments."""

    @property
    def full_at(self) -> int | None:
        """The most bytes of segments if the GPU was full, so that the allocator had to release some; else None."""
        return self.recording.most_reserved() if self.released else None

    @property
    def begins_in_the_middle(self) -> bool:
        """True if something was there before the recording."""
        return bool(self.start or self.before)

    @property
    def asked_before(self) -> list[tuple[int, int, int]]:
        """Bytes, stream and address of what was there before, in the order in which a replay asks for it anew."""
        return self.before if self.start is None else list(_requests(self.start))

    @cached_property
    def recorded(self) -> Replayed:
        """The replay of what happened.

        A snapshot does not say which PyTorch wrote it, and so in which order free blocks were taken: it is the order
        that leads to the recorded addresses.
        """
        by_address = self._as_recorded(None, oldest_first=False)
        if self.start is None or not by_address.num_moved:
            return by_address
        by_age = self._as_recorded(None, oldest_first=True)
        return min(by_address, by_age, key=lambda replayed: replayed.num_moved)

    def recorded_until(self, position: int) -> Replayed:
        """Replay what happened up to an event, itself included."""
        return self._as_recorded(position, oldest_first=self.recorded.oldest_first)

    def _as_recorded(self, until: int | None, *, oldest_first: bool) -> Replayed:
        """Release segments where they were released, and give new ones their recorded addresses."""
        settings, driver = AllocatorSettings.parse(self.recording.settings), _RecordedDriver(self.recording)
        return self._replayed(settings, driver, self.emptied | self.released, until, oldest_first=oldest_first)

    def replay(
        self,
        settings: AllocatorSettings,
        capacity: int | None = None,
        *,
        empties_cache: bool = True,
        until: int | None = None,
    ) -> Replayed:
        """Replay the requests up to the event at position `until`, itself included, on `capacity` bytes for segments.

        It fails at the first request that cannot be served; a recorded failure is a request as any other.
        """
        releases: frozenset[int] = self.emptied if empties_cache else frozenset()
        oldest_first = self.recorded.oldest_first
        return self._replayed(settings, self._driver(capacity), releases, until, oldest_first=oldest_first)

    def _calls_among(self, either: Mapping[int, int], others: set[int]) -> set[int]:
        """Positions of releases before a request that one of the released blocks would have served.

        The allocator would not have released it, so the program did.
        """
        events = self.recording.events
        calls: set[int] = set()

        def look(position: int, allocator: Allocator) -> None:
            if position not in either:
                return
            asked = either[position]
            while asked < len(events) and events.actions[asked] != ALLOC:
                asked += 1
            if asked < len(events) and allocator.can_serve(events.sizes[asked], events.streams[asked]):
                calls.add(position)

        settings = AllocatorSettings.parse(self.recording.settings)
        self._replayed(settings, _RecordedDriver(self.recording), frozenset(either.keys() | others), None, look)
        return calls

    @uncollected()
    def _replayed(
        self,
        settings: AllocatorSettings,
        driver: Driver,
        releases: frozenset[int],
        until: int | None,
        on_release: Callable[[int, Allocator], None] | None = None,
        *,
        oldest_first: bool = False,
    ) -> Replayed:
        events = self.recording.events
        ends = end_of_life(self.recording)
        capacity = driver.capacity
        share = None if settings.memory_fraction == 1 or capacity is None else int(settings.memory_fraction * capacity)
        allocator = Allocator(settings, driver=driver, share=share, oldest_first=oldest_first)
        asks_at = None if isinstance(driver, _RecordedDriver) else until
        failed_at = None
        num_moved = 0
        position = BEFORE
        last = len(events) - 1 if until is None else until
        columns = zip(range(last + 1), events.actions, events.addresses, events.sizes, events.streams, strict=False)
        try:
            live = self._begin(allocator)
            for position, action, address, nbytes, stream in columns:
                if position in releases:
                    if on_release is not None:
                        on_release(position, allocator)
                    allocator.empty_cache()
                if action == ALLOC:
                    block = live[address] = allocator.malloc(nbytes, stream)
                    num_moved += block.address != address
                elif action == ends:
                    if address in live:
                        allocator.free(live.pop(address))
                elif position == asks_at:  # the request that failed
                    allocator.malloc(nbytes, stream)
        except OutOfMemory:
            failed_at = position
        except (AssertionError, IndexError, KeyError, TypeError) as error:  # two blocks at one address, and the like
            raise TargetError(
                f"event {position} of the recording contradicts what came before it",
                "Record the run again: a file that PyTorch wrote is consistent.",
            ) from error
        return Replayed(
            allocator.peak_requested,
            allocator.peak_allocated,
            allocator.peak_reserved,
            allocator.num_retries,
            failed_at,
            (allocator.allocated, allocator.reserved),
            tuple(sorted(_free_blocks(allocator), reverse=True)),
            num_moved,
            oldest_first,
        )

    @cached_property
    def descending(self) -> bool:
        """True if the driver handed out addresses downwards, as on Linux."""
        recorded = [
            address
            for action, address in zip(self.recording.events.actions, self.recording.events.addresses, strict=True)
            if action == SEGMENT_ALLOC
        ]
        falls = sum(second < first for first, second in pairwise(recorded))
        return falls > len(recorded) / 2

    def _driver(self, capacity: int | None) -> Driver:
        """A driver that hands out addresses in the recorded direction, and none that is taken."""
        descending, taken = self.descending, self.start or ()
        if not taken:
            return Driver(capacity, descending=descending)
        edge = min(each.address for each in taken) if descending else max(each.address + each.nbytes for each in taken)
        edge -= edge % _ALIGNMENT
        return Driver(capacity, descending=descending, first_address=edge + (0 if descending else _ALIGNMENT))

    def _begin(self, allocator: Allocator) -> dict[int, Block]:
        """Put what was there before into the allocator; return its blocks in use by address.

        Expandable segments would have held it in others: then, and where it is not known how it lay, it is asked for
        anew, in the order of addresses.
        """
        live: dict[int, Block] = {}
        if self.start is not None and not allocator.settings.expandable_segments:
            for segment in self.start:
                for block in allocator.adopt(
                    segment.address, segment.stream, segment.blocks, is_small=segment.is_small
                ):
                    if block.allocated:
                        live[block.address] = block
            return live
        for nbytes, stream, address in self.asked_before:
            live[address] = allocator.malloc(nbytes, stream)
        return live


class _RecordedDriver(Driver):
    """Gives new segments the addresses that they were recorded with, in that order."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(None)
        events = recording.events
        self.recorded = deque(
            address for action, address in zip(events.actions, events.addresses, strict=True) if action == SEGMENT_ALLOC
        )

    def reserve_addresses(self, nbytes: int, stream: int) -> int:
        """Give the next recorded address, and made-up ones behind the last."""
        return self.recorded.popleft() if self.recorded else super().reserve_addresses(nbytes, stream)


def _free_blocks(allocator: Allocator) -> Iterator[tuple[int, int, bool]]:
    for blocks in allocator.segments():
        for block in blocks:
            if block.mapped and not block.allocated:
                yield block.size, block.stream, block.pool.is_small


def _requests(start: tuple[StartingSegment, ...]) -> Iterator[tuple[int, int, int]]:
    for segment in start:
        address = segment.address
        for size, requested in segment.blocks:
            if requested is not None:
                yield requested, segment.stream, address
            address += size


def _before(recording: Recording) -> list[tuple[int, int, int]]:
    alive = lifetimes(recording)
    return [
        (alive.nbytes[number], alive.streams[number], alive.addresses[number]) for number in range(alive.num_before)
    ]


def _releases(recording: Recording) -> tuple[set[int], set[int], dict[int, int]]:
    """Positions of the events before which segments were released: by `empty_cache`, by the allocator, and by either.

    The allocator releases segments only where the driver has no memory left for one. Where stacks are recorded, they
    tell the two apart. Elsewhere a release is a call if no segment was asked for next, or if that one would not have
    exceeded what was reserved at another time. The rest has the position of the request that follows.
    """
    events = recording.events
    emptied: set[int] = set()
    released: set[int] = set()
    either: dict[int, int] = {}
    most = recording.most_reserved()
    reserved = recording.reserved - sum(map(recording.change_of_reserved, range(len(events))))
    position, num = 0, len(events)
    while position < num:
        if events.actions[position] not in RELEASES:
            reserved += recording.change_of_reserved(position)
            position += 1
            continue
        start, before = position, reserved
        while position < num and events.actions[position] in RELEASES:
            reserved += recording.change_of_reserved(position)
            position += 1
        site = recording.site(events.sites[start])
        follows = events.actions[position] if position < num else None
        if site is not None and site.has_frames:
            (emptied if site.empties_cache else released).add(start)
        elif follows == OOM:
            released.add(start)
        elif follows not in GROWS or before + events.sizes[position] <= most:
            emptied.add(start)
        else:
            either[start] = position
    return emptied, released, either

"""Peaks that a GPU would show, computed from a Timeline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeAlias, overload

from memlint.base.grouping import grouped
from memlint.memory.allocator.driver import Driver
from memlint.memory.allocator.fast import peaks as replayed_peaks
from memlint.memory.allocator.reference import Allocator, AllocatorSettings, Block, OutOfMemory
from memlint.memory.devices import Device
from memlint.memory.records import NO_NODE, ONE_STREAM, Buffer, Category, Doubt, Frame, Node, Phase, Streams
from memlint.memory.timeline import Timeline, alive_at, by_category, live

if TYPE_CHECKING:
    from array import array

    import numpy as np

    Sizes: TypeAlias = list[int] | array[int] | np.ndarray
    Events: TypeAlias = Sequence[int] | np.ndarray


Cause: TypeAlias = Literal["context", "cache", "workspaces"]
"""Causes of doubt: the CUDA context; empty segments, which depend on everything that ran before; libraries' workspaces.
"""
_Most: TypeAlias = tuple[int, int, int]
"""Requested, allocated and reserved bytes."""

CACHE_SPREAD: Final = 0.25
"""Share by which the cache, reserved minus allocated bytes, may be smaller or larger than predicted.

It depends on everything that ran before the step. In seven published figures to which it may be fitted, the cache was
0.77 to 1.22 times the prediction (fixtures/published).
"""


class Interval(NamedTuple):
    """Bytes that cannot be known exactly: at least `low`, at most `high`, most likely `estimate`."""

    low: int
    estimate: int
    high: int

    @classmethod
    def exact(cls, nbytes: int) -> Self:
        """Make an Interval of bytes that are known."""
        return cls(nbytes, nbytes, nbytes)


class Doubtful(NamedTuple):
    """A cause of uncertainty in `device`, and the bytes by which it may lower or raise the value."""

    cause: Cause
    below: int
    above: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """The peaks of a Timeline on a device, and what holds the bytes at the peak of `requested`."""

    requested: Interval
    """Bytes that the program requests."""
    allocated: Interval
    """`torch.cuda.max_memory_allocated`: blocks, with rounding and tails too small to split off."""
    reserved: Interval
    """`torch.cuda.max_memory_reserved`: segments."""
    device: Interval
    """Memory that NVML shows: segments and the CUDA context."""
    doubtful: tuple[Doubtful, ...]
    """Reasons why `device` is an interval: together they are its bounds, except for what does not fit on a full GPU."""
    on_larger: int
    """Bytes of segments on a larger GPU, if this one fills up and cached segments are released; else 0."""
    peak_event: int
    """Position in the events; -1 if there are none."""
    peak_node: int
    """The Node running at the peak; -1 before the first."""
    phase: Phase
    frame: Frame | None
    module: str
    op: str
    """Phase, source line, module path and kernel of that Node."""
    categories: dict[Category, int]
    """Requested bytes at the peak, most first."""
    at_peak: Sequence[Buffer]
    """Buffers alive at the peak, biggest first."""
    phase_peaks: dict[Phase, int]
    """Most requested bytes that are live while a Node of each phase runs."""

    def encoded(self) -> dict[str, Any]:
        """Return everything but `at_peak` as JSON may have it."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "at_peak"}

    @classmethod
    def decoded(cls, encoded: Mapping[str, Any], timeline: Callable[[], Timeline]) -> Self:
        """Return the Estimate of a `timeline` that was `encoded`; it is only asked for if the Buffers are."""
        intervals = {name: Interval(*encoded[name]) for name in ("requested", "allocated", "reserved", "device")}
        frame = encoded["frame"]
        event = encoded["peak_event"]
        others = {
            "doubtful": tuple(Doubtful(*each) for each in encoded["doubtful"]),
            "phase": Phase(encoded["phase"]),
            "frame": _frame(frame),
            "categories": {Category(name): nbytes for name, nbytes in encoded["categories"].items()},
            "phase_peaks": {Phase(name): nbytes for name, nbytes in encoded["phase_peaks"].items()},
            "at_peak": _AtPeak(lambda: _biggest_first(timeline(), event)),
        }
        return cls(**{**encoded, **intervals, **others})


def _frame(encoded: Sequence[Any] | None) -> Frame | None:
    if encoded is None:
        return None
    path, line, function, caller = encoded
    return Frame(path, line, function, _frame(caller))


class _AtPeak(Sequence[Buffer]):
    """Buffers that are found when they are asked for."""

    def __init__(self, find: Callable[[], tuple[Buffer, ...]]) -> None:
        self._find = find

    @cached_property
    def _buffers(self) -> tuple[Buffer, ...]:
        return self._find()

    @overload
    def __getitem__(self, place: int) -> Buffer: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Buffer, ...]: ...

    def __getitem__(self, place: int | slice) -> Buffer | tuple[Buffer, ...]:
        return self._buffers[place]

    def __len__(self) -> int:
        return len(self._buffers)


def _biggest_first(timeline: Timeline, event: int) -> tuple[Buffer, ...]:
    return tuple(sorted(alive_at(timeline, event), key=lambda buffer: (-buffer.nbytes, buffer.id)))


def estimate(
    timeline: Timeline, device: Device, nodes: Sequence[Node], settings: AllocatorSettings | None = None
) -> Estimate:
    """Fold a Timeline over `device`, whose allocator has `settings`; `nodes` are those of its Trace.

    The host has neither a caching allocator nor a context: on device `cpu` all four peaks are `requested`.
    """
    nbytes = live(timeline)
    sizes = [buffer.nbytes for buffer in timeline.buffers]
    most = peaks(sizes, timeline.events, timeline.doubts, device, settings, timeline.streams)
    event = nbytes.index(max(nbytes)) if nbytes else -1
    node = timeline.event_nodes[event] if nbytes else -1
    running = nodes[node] if node >= 0 else NO_NODE
    at_peak = _biggest_first(timeline, event)
    return Estimate(
        **most._asdict(),
        peak_event=event,
        peak_node=node,
        phase=running.phase,
        frame=running.frame,
        module=running.module,
        op=running.op,
        categories=by_category(at_peak),
        at_peak=at_peak,
        phase_peaks=_phase_peaks(timeline, nbytes, nodes),
    )


class Peaks(NamedTuple):
    """Most bytes at any time; fields as in Estimate."""

    requested: Interval
    allocated: Interval
    reserved: Interval
    device: Interval
    doubtful: tuple[Doubtful, ...]
    on_larger: int


class SizePeaks(NamedTuple):
    """Peaks at one size, or the reason why there are none."""

    batch: int
    peaks: Peaks | None
    evidence: Literal["traced", "computed"] = "traced"
    """`traced` if a step of this size was run, `computed` if the peaks follow from steps of other sizes."""
    error: str | None = None


def peaks(
    sizes: Sizes,
    events: Events,
    doubts: Collection[Doubt],
    device: Device,
    settings: AllocatorSettings | None = None,
    streams: Streams = ONE_STREAM,
) -> Peaks:
    """Fold Buffers of these `sizes` over `device`; `events`, `doubts` and `streams` as in Trace.

    The bounds come from three variants: every size in doubt at its lowest, every one at its highest, and, unless free
    blocks are taken by age, segments at descending addresses in place of those of Windows's driver; those of `reserved`
    are CACHE_SPREAD of the cache further apart. A Buffer that may be as large as the device takes no more than is free
    there, and leaves no cache: PyTorch empties it after a search of cuDNN's (aten/src/ATen/native/cudnn/Conv_v8.cpp).
    Memory that other streams use is free as soon as it dies or, for the upper bound of `reserved`, only after the
    program has waited for them. On a full device PyTorch releases cached segments, so that `reserved` is at least the
    allocated bytes; if that is not enough, the bytes are those of a larger device.
    """
    searched = _Taken(sizes, events, device, settings, streams)
    searches, rivals, doubts = _apart(doubts, device)
    taken = searched.resized(dict.fromkeys(searches, 0))
    upwards = taken.upwards(doubts)
    lowest = taken.resized({doubt.buffer: doubt.low for doubt in (*doubts, *rivals)})
    least = (upwards[0] if lowest is taken else lowest.folded()).beside(device.context_low)
    likely, elsewhere = (folded.beside(device.context_nbytes) for folded in upwards[:2])
    most = [folded.beside(device.context_high) for folded in upwards]
    spread = int(CACHE_SPREAD * (likely[2] - likely[1]))
    tried = 0, 0, 0
    if searches or rivals:
        free = device.total_nbytes - device.context_low
        highest = _highest([*doubts, *rivals])
        beside = _at_most(taken.resized(highest).folded().most, free)
        cache = spread + max(reserved - allocated for _, allocated, reserved in (likely, elsewhere, *most, beside))
        tried = _beside_searches(beside, searched.resized({**highest, **searches}).folded().most, cache, free)
        free = device.total_nbytes - device.context_nbytes
        likely, elsewhere = (
            _beside_searches(each, searched.folded().most, each[2] - each[1], free) for each in (likely, elsewhere)
        )
    # Segments can fit together worse if less is taken.
    requested, allocated, reserved = (
        Interval(min(low, middle, other), middle, max(middle, other, free, *highs))
        for low, middle, other, free, *highs in zip(least, likely, elsewhere, tried, *most, strict=True)
    )
    without_end = upwards[0].most[2]
    on_larger = without_end if without_end > likely[2] else 0
    # On a full device, the remaining cache depends on the address of every block.
    low = allocated.low if on_larger else max(allocated.low, reserved.low - spread)
    high = max(reserved for _requested, _allocated, reserved in most) + device.context_high
    shown = Interval(
        low + device.context_low,
        reserved.estimate + device.context_nbytes,
        max(high, min(high + spread, device.total_nbytes)),
    )
    room = device.total_nbytes - device.context_low
    reserved = Interval(low, reserved.estimate, max(reserved.high, min(reserved.high + spread, room)))
    if any(tried):
        shown = shown._replace(high=max(shown.high, min(tried[2] + device.context_high, device.total_nbytes)))
    # The doubt of `reserved` that comes from sizes alone; the rest comes from addresses of segments and earlier work.
    sized = (each[2] for each, folded in zip(most, upwards, strict=True) if folded.taken.sizes is not taken.sizes)
    of_sizes = likely[2] - least[2], max([*sized, tried[2], likely[2]]) - likely[2]
    return Peaks(requested, allocated, reserved, shown, _doubtful(shown, device, of_sizes), on_larger)


def _doubtful(shown: Interval, device: Device, of_sizes: tuple[int, int]) -> tuple[Doubtful, ...]:
    """Return the causes that make `shown` an interval.

    `of_sizes`: bytes by which sizes in doubt may lower and raise it.
    """
    context = device.context_nbytes - device.context_low, device.context_high - device.context_nbytes
    ways = shown.estimate - shown.low, shown.high - shown.estimate
    left = [max(0, way - own) for way, own in zip(ways, context, strict=True)]
    workspaces = [min(most, max(0, own)) for most, own in zip(left, of_sizes, strict=True)]
    cache = [most - own for most, own in zip(left, workspaces, strict=True)]
    of_context = [way - rest for way, rest in zip(ways, left, strict=True)]
    parts = (Doubtful("context", *of_context), Doubtful("cache", *cache), Doubtful("workspaces", *workspaces))
    return tuple(part for part in parts if part.below or part.above)


def _apart(doubts: Collection[Doubt], device: Device) -> tuple[dict[int, int], list[Doubt], list[Doubt]]:
    """Separate doubts that only take free memory from the others.

    Their `high` exceeds the device's memory by their maximum. The result is: Buffers that leave no cache, with the most
    that they request; those that stay in the cache, whose `high` is above twice the device's memory; and the others.
    """
    total = device.total_nbytes
    if not device.is_cuda:
        return {}, [], list(doubts)
    searches = {doubt.buffer: doubt.high - total for doubt in doubts if total <= doubt.high < 2 * total}
    rivals = [doubt._replace(high=doubt.high - 2 * total) for doubt in doubts if doubt.high >= 2 * total]
    return searches, rivals, [doubt for doubt in doubts if doubt.high < total]


def _highest(doubts: Collection[Doubt]) -> dict[int, int]:
    """Return the largest size of each."""
    return {doubt.buffer: doubt.high for doubt in doubts}


def _at_most(most: _Most, free: int) -> _Most:
    requested, allocated, reserved = most
    return min(requested, free), min(allocated, free), min(reserved, free)


def _beside_searches(most: _Most, searched: _Most, cache: int, free: int) -> _Most:
    """Combine the peaks without and with Buffers that only take free memory beside a `cache`, and leave none."""
    requested, allocated, reserved = most
    asked, taken, _ = _at_most(searched, free)
    return max(requested, asked), max(allocated, taken), max(reserved, min(taken + cache, free))


def stream_peaks(timeline: Timeline, device: Device, settings: AllocatorSettings | None = None) -> dict[int, _Most]:
    """Requested, allocated and reserved bytes of each CUDA stream at its own peak, the default stream 0 first."""
    own = timeline.streams.own
    sizes = [buffer.nbytes for buffer in timeline.buffers]
    events = grouped((own.get(event if event >= 0 else ~event, 0), event) for event in timeline.events)
    taken = _Taken(sizes, timeline.events, device, settings, timeline.streams)
    taken = taken._replace(streams=taken.streams._replace(emptied=()))  # whose positions are those of all events
    return {stream: taken._replace(events=events[stream]).folded().most for stream in sorted(events)}


def most_device(
    sizes: Sizes,
    events: Events,
    doubts: Collection[Doubt],
    device: Device,
    settings: AllocatorSettings | None = None,
    streams: Streams = ONE_STREAM,
) -> int:
    """Upper bound of `peaks(...).device`, to find out what fits.

    Cache and free memory are not counted, since both can be released when memory runs out.
    """
    searches, _rivals, doubts = _apart(doubts, device)
    taken = _Taken(sizes, events, device, settings, streams).resized(dict.fromkeys(searches, 0))
    upwards = taken.upwards(doubts)
    return max(folded.beside(device.context_high)[2] for folded in upwards) + device.context_high


class _Taken(NamedTuple):
    """Input of a fold: Buffers of these sizes on a device; `events` and `streams` as in Trace."""

    sizes: Sizes
    events: Events
    device: Device
    settings: AllocatorSettings | None
    streams: Streams

    def resized(self, others: Mapping[int, int]) -> Self:
        """Return the same with other sizes of some Buffers: itself if no size differs."""
        if all(self.sizes[buffer] == nbytes for buffer, nbytes in others.items()):
            return self
        sizes = copy(self.sizes)
        for buffer, nbytes in others.items():
            sizes[buffer] = nbytes
        return self._replace(sizes=sizes)

    def held(self) -> Self:
        """Return the same with Buffers that other streams use closing as late as possible."""
        late = grouped((position, ~buffer) for buffer, position in self.streams.held.items())
        moved: list[int] = []
        moved_to: list[int] = []
        for position, event in enumerate(map(int, self.events)):
            moved += late[position]
            moved_to.append(len(moved))
            if ~event not in self.streams.held:
                moved.append(event)
        streams = self.streams._replace(emptied=tuple(map(moved_to.__getitem__, self.streams.emptied)))
        return self._replace(events=moved + late[len(self.events)], streams=streams)

    def upwards(self, doubts: Collection[Doubt]) -> list[_Folded]:
        """Fold it as it is, with descending addresses if these matter, and with every size in doubt at its highest."""
        highest = self.resized(_highest(doubts))
        as_it_is = self.folded()
        upwards = [as_it_is, as_it_is if self.streams.oldest_first else self.folded(descending=True)]
        if highest is not self:
            upwards.append(highest.folded())
        if self.streams.held and self.device.is_cuda:
            held = highest.held().folded()
            upwards.append(held._replace(most=(*upwards[-1 if highest is not self else 0].most[:2], held.most[2])))
        return upwards

    def folded(self, *, descending: bool = False) -> _Folded:
        """Compute its peaks with segment addresses as Driver gives them, on a device without limit."""
        device, settings = self.device, self.settings or AllocatorSettings()
        if device.is_cuda and settings == AllocatorSettings() and not self.streams.emptied:
            streams = self.streams.own, self.streams.first_after_index
            most = replayed_peaks(self.sizes, self.events, *streams, descending=descending)
            return _Folded(self, descending, most)
        sizes, events = list(map(int, self.sizes)), list(map(int, self.events))
        signed = [*sizes, *(-nbytes for nbytes in reversed(sizes))]  # the bytes that event ~n frees stand at index ~n
        requested = max(accumulate(map(signed.__getitem__, events)), default=0)
        if not device.is_cuda:
            return _Folded(self, descending, (requested, requested, requested))
        try:
            allocator = self.replayed(Driver(descending=descending), self.share)
        except OutOfMemory:  # the share is too small: then the memory that the program would need without it
            allocator = self.replayed(Driver(descending=descending), None)
        return _Folded(self, descending, (requested, allocator.peak_allocated, allocator.peak_reserved))

    @property
    def share(self) -> int | None:
        """Bytes that the process may reserve."""
        fraction = self.settings.memory_fraction if self.settings else 1
        return int(fraction * self.device.total_nbytes) if fraction < 1 else None

    def replayed(self, driver: Driver, share: int | None) -> Allocator:
        """Return the Allocator after all events; it may reserve `share` bytes. Raises OutOfMemory."""
        return _replay(list(map(int, self.sizes)), map(int, self.events), self.settings, self.streams, driver, share)


class _Folded(NamedTuple):
    """Input of a fold, and its peaks on a device without limit."""

    taken: _Taken
    descending: bool
    most: _Most

    def beside(self, context: int) -> _Most:
        """Return the peaks on the device, of which `context` bytes are not the allocator's."""
        capacity = self.taken.device.total_nbytes - context
        requested, allocated, reserved = self.most
        if not self.taken.device.is_cuda or reserved <= capacity or allocated > capacity:
            return self.most
        try:
            allocator = self.taken.replayed(Driver(capacity, descending=self.descending), self.taken.share)
        except OutOfMemory:
            return self.most
        return requested, allocator.peak_allocated, allocator.peak_reserved


def replay(timeline: Timeline, settings: AllocatorSettings | None = None) -> Allocator:
    """Run every event through an Allocator without a limit. As in PyTorch, zero bytes take no block."""
    sizes = [buffer.nbytes for buffer in timeline.buffers]
    return _replay(sizes, timeline.events, settings, timeline.streams, Driver())


def _replay(
    sizes: Sequence[int],
    events: Iterable[int],
    settings: AllocatorSettings | None,
    streams: Streams,
    driver: Driver,
    share: int | None = None,
) -> Allocator:
    allocator = Allocator(settings, driver=driver, share=share)
    malloc, free, stream_of = allocator.malloc, allocator.free, streams.own.get
    blocks: dict[int, Block] = {}
    emptied = iter((*streams.emptied, -1))
    next_emptied = next(emptied)
    for position, event in enumerate(events):
        if position == next_emptied:
            allocator.empty_cache()
            next_emptied = next(emptied)
        if event >= 0:
            if event == streams.first_after_index:
                driver.open_below(stream_of(event, 0))
            if sizes[event]:
                blocks[event] = malloc(sizes[event], stream_of(event, 0))
        elif sizes[~event]:
            free(blocks.pop(~event))
    return allocator


def _phase_peaks(timeline: Timeline, nbytes: Sequence[int], nodes: Sequence[Node]) -> dict[Phase, int]:
    """Return the most live bytes under the Nodes of each phase, including Nodes without events."""
    most: dict[int, int] = {}
    for index, now in zip(timeline.event_nodes, nbytes, strict=True):
        most[index] = max(most.get(index, 0), now)
    last = dict(zip(timeline.event_nodes, nbytes, strict=True))
    peaks: dict[Phase, int] = {Phase.OTHER: most[-1]} if -1 in most else {}
    at_start = last.get(-1, 0)
    for node in nodes:
        peaks[node.phase] = max(peaks.get(node.phase, 0), most.get(node.index, 0), at_start)
        at_start = last.get(node.index, at_start)
    return peaks

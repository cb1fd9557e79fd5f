"""Snapshots that `torch.cuda.memory._dump_snapshot` wrote, of PyTorch 1.13 to 2.13, as Recordings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from memlint.capture.plain_pickle import EVENT, Source, Values, read_plain
from memlint.capture.recorded import (
    ACTIONS,
    OOM,
    OTHER,
    Events,
    RecordedBlock,
    RecordedSegment,
    Recording,
    Site,
    site_of,
)
from memlint.memory.records import Category

_NUMBERS: Final = {name: number for number, name in enumerate(ACTIONS)}
_CATEGORIES: Final = {each.value: each for each in Category}
_SMALL_SEGMENT: Final = "small"
_MOST_BLOCKS: Final = 4_000_000
_MOST_SITES: Final = 2**20
_MOST_KEPT: Final = 2**18
_LONG: Final = 2**10
"""Stacks of which the number is known by the bytes in which they are written, unless these are more."""
_REFERENCE: Final = 5
"""Most bytes of a reference to a stack that was written before; others are lists that stand in an event."""


class _SiteNumber(int):
    """Stands for a stack that was taken: its position in `sites`."""


class _Taker:
    """Puts the events of all devices into columns, and each stack into `sites` once."""

    def __init__(self) -> None:
        self.events = Events()
        self.sites: dict[Site, _SiteNumber] = {}
        self.by_list: dict[int, _SiteNumber] = {}
        self.lists: list[Any] = []
        """Keeps the lists whose ids are in `by_list`."""
        self.categories: dict[int, Category] = {}

    def site(self, frames: Any) -> int:
        """Return the number of a stack."""
        if frames is None:
            return -1
        if type(frames) is _SiteNumber:
            return frames
        number = self.by_list.get(id(frames))
        if number is None:
            number = self._number(frames)
            self.by_list[id(frames)] = number
            self.lists.append(frames)
        return number

    def _number(self, frames: Sequence[Any]) -> _SiteNumber:
        if len(self.sites) > _MOST_SITES:
            raise ValueError(f"it has more than {_MOST_SITES:,} different stacks")
        return self.sites.setdefault(site_of(frames), _SiteNumber(len(self.sites)))

    def take(self, event: dict[str, Any]) -> None:
        """Append an event."""
        action = _NUMBERS.get(event["action"], OTHER)
        place = event.get("device_free", 0) if action == OOM else event.get("addr", 0)
        if category := _CATEGORIES.get(event.get("category", "")):
            self.categories[len(self.events)] = category
        self.events.add(action, place, event["size"], event.get("stream", 0), self.site(event.get("frames")))

    def taker(self, keys: tuple[str, ...], value: Callable[[bytes], Any]) -> Callable[[Values], int] | None:
        """Return a function that appends an event with these keys, and decodes frequent values once."""
        if not {"action", "addr", "size", "stream"} <= set(keys) or "category" in keys:
            return None
        at_action, at_address, at_size, at_stream = map(keys.index, ("action", "addr", "size", "stream"))
        at_frames = keys.index("frames") if "frames" in keys else None
        actions: dict[bytes, int] = {}
        streams: dict[bytes, int] = {}
        sites: dict[bytes, int] = {}
        events = self.events
        add_action, add_address, add_size = events.actions.append, events.addresses.append, events.sizes.append
        add_stream, add_site = events.streams.append, events.sites.append

        def take(values: Values) -> int:
            token = values[at_action]
            action = actions.get(token)
            if action is None:
                action = actions[token] = _NUMBERS.get(value(token), OTHER)
            add_action(action)
            address = values[at_address]
            add_address(int.from_bytes(address[2:], "little", signed=True) if address[0] == 0x8A else value(address))
            add_size(value(values[at_size]))
            token = values[at_stream]
            stream = streams.get(token)
            if stream is None:
                stream = streams[token] = value(token)
            add_stream(stream)
            if at_frames is None:
                add_site(-1)
                return -1
            token = values[at_frames]
            site = sites.get(token)
            if site is None:
                frames = value(token)
                site = self.site(frames) if len(token) <= _REFERENCE else self._number(frames)
                if len(sites) < _MOST_KEPT and len(token) < _LONG:
                    sites[token] = site
            add_site(site)
            return site

        return take


def read_snapshot(file: Source) -> list[Recording]:
    """Read the pickle of a snapshot, for each GPU that recorded something or has memory.

    Raises ValueError, KeyError or TypeError for what is no snapshot.
    """
    taker = _Taker()
    snapshot = read_plain(file, taker)
    if isinstance(snapshot, list):  # `torch.cuda.memory_snapshot()` by itself
        snapshot = {"segments": snapshot}
    traces: Sequence[Sequence[Any]] = snapshot.get("device_traces") or []
    events = taker.events
    in_traces = sum(map(len, traces)) == len(events) and all(event is EVENT for trace in traces for event in trace)
    if not in_traces or min(events.sizes, default=0) < 0:
        raise ValueError("its events are not those of device_traces")
    settings = snapshot.get("allocator_settings")
    settings = settings if isinstance(settings, Mapping) else None
    if sum(len(each["blocks"]) for each in snapshot["segments"]) > _MOST_BLOCKS:
        raise ValueError(f"it has more than {_MOST_BLOCKS:,} blocks")
    segments: dict[int, list[RecordedSegment]] = {}
    for each in snapshot["segments"]:
        segments.setdefault(int(each.get("device", 0)), []).append(_segment(each, taker))
    sites = tuple(taker.sites)
    num_recorded = sum(bool(trace) for trace in traces)
    recordings = []
    start = 0
    for device in sorted({*range(len(traces)), *segments}):
        num = len(traces[device]) if device < len(traces) else 0
        if num or device in segments:
            is_only = num == len(events)
            recordings.append(
                Recording(
                    device=device,
                    events=events if is_only else events.part(start, start + num),
                    sites=sites,
                    segments=tuple(segments.get(device, ())),
                    settings=_conf(settings or {}),
                    knows_settings=settings is not None,
                    categories={at - start: each for at, each in taker.categories.items() if start <= at < start + num},
                    num_recorded=num_recorded,
                )
            )
        start += num
    return recordings


def _conf(settings: Mapping[str, Any]) -> str:
    return str(settings.get("PYTORCH_CUDA_ALLOC_CONF") or settings.get("PYTORCH_ALLOC_CONF") or "")


def _segment(segment: Mapping[str, Any], taker: _Taker) -> RecordedSegment:
    return RecordedSegment(
        address=int(segment["address"]),
        nbytes=int(segment["total_size"]),
        stream=int(segment.get("stream", 0)),
        is_small=segment.get("segment_type") == _SMALL_SEGMENT,
        is_expandable=bool(segment.get("is_expandable", False)),
        is_private=tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0),
        blocks=tuple(_blocks(segment, taker)),
    )


def _blocks(segment: Mapping[str, Any], taker: _Taker) -> Iterator[RecordedBlock]:
    address = int(segment["address"])
    for block in segment["blocks"]:
        nbytes, state = int(block["size"]), str(block["state"])
        # Up to torch 2.1 each block has a history, the newest first.
        history: Sequence[Mapping[str, Any]] = block.get("history") or ({},)
        frames = block.get("frames", history[0].get("frames"))
        requested = 0 if state == "inactive" else int(block.get("requested_size", history[0].get("real_size", nbytes)))
        category = _CATEGORIES.get(block.get("category", ""), Category.OTHER)
        yield RecordedBlock(address, nbytes, requested, state, taker.site(frames), category)
        address += nbytes

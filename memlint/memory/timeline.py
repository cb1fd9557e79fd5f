"""Opening and closing of every Buffer, live bytes in between, and edits of lifetimes and sizes.

A Timeline is a value: edits give another Timeline in which Buffers keep their ids, and positions in the events are
those of the new one.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Self

from memlint.base.grouping import grouped
from memlint.memory.records import ONE_STREAM, Buffer, Category, Doubt, Streams, Trace


@dataclass(frozen=True, slots=True)
class Timeline:
    """The opening and closing of Buffers in order; fields as in `Trace`."""

    buffers: tuple[Buffer, ...]
    events: tuple[int, ...]
    event_nodes: tuple[int, ...]
    num_steps: int
    step_nodes: tuple[int, ...]
    doubts: tuple[Doubt, ...] = ()
    streams: Streams = ONE_STREAM

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """Make the Timeline of a Trace."""
        return cls(**{field.name: getattr(trace, field.name) for field in fields(cls)})


def live(timeline: Timeline) -> list[int]:
    """Count requested bytes that are live after each event."""
    sizes = [buffer.nbytes for buffer in timeline.buffers]
    return list(accumulate(sizes[event] if event >= 0 else -sizes[~event] for event in timeline.events))


def peak_event(timeline: Timeline) -> int:
    """Find the first event after which the most requested bytes are live; -1 if there are no events."""
    nbytes = live(timeline)
    return nbytes.index(max(nbytes)) if nbytes else -1


def alive_at(timeline: Timeline, event: int) -> tuple[Buffer, ...]:
    """Return the Buffers that hold bytes after `event`, in order of birth."""
    alive: dict[int, None] = {}
    for happened in timeline.events[: event + 1]:
        if happened >= 0:
            alive[happened] = None
        else:
            del alive[~happened]
    return tuple(timeline.buffers[buffer] for buffer in alive if timeline.buffers[buffer].nbytes)


def by_category(buffers: Iterable[Buffer]) -> dict[Category, int]:
    """Sum the bytes of each category, most first."""
    totals: defaultdict[Category, int] = defaultdict(int)
    for buffer in buffers:
        totals[buffer.category] += buffer.nbytes
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def end_at(timeline: Timeline, last_nodes: Mapping[int, int]) -> Timeline:
    """Close Buffers right after the given Node, as if the program had released them there.

    `last_nodes` maps Buffer ids to Node indices. A Buffer that closes sooner, or that no event opens, stays as it is;
    one that opens later closes at once.
    """
    moved: defaultdict[int, list[int]] = defaultdict(list)
    dropped: set[int] = set()
    opened = {event for event in timeline.events if event in last_nodes}
    for buffer_id in sorted(opened):
        buffer = timeline.buffers[buffer_id]
        position = max(bisect_right(timeline.event_nodes, last_nodes[buffer_id]), buffer.born + 1)
        if buffer.died is None or position <= buffer.died:
            moved[position].append(~buffer_id)
            dropped.add(~buffer_id)
    return _with_events_moved(timeline, moved, dropped) if moved else timeline


def resize(timeline: Timeline, sizes: Mapping[int, int]) -> Timeline:
    """Give Buffers, by id, other sizes in bytes."""
    buffers = list(timeline.buffers)
    for buffer_id, nbytes in sizes.items():
        buffers[buffer_id] = buffers[buffer_id]._replace(nbytes=nbytes)
    return replace(timeline, buffers=tuple(buffers))


def without(timeline: Timeline, buffer_ids: Collection[int]) -> Timeline:
    """Remove Buffers: they keep their ids and events, and hold no bytes."""
    return resize(timeline, dict.fromkeys(buffer_ids, 0))


def merge(timeline: Timeline, written: Mapping[int, int]) -> Timeline:
    """Let Buffers be written over others, as an in-place operation does.

    `written` maps the id of each Buffer that is no longer made to that of the Buffer it is written over, which lives
    until both would have closed. Sizes must agree: the overwritten Buffer keeps its own.
    """
    lasts: dict[int, int | None] = {}
    for buffer_id in written:
        over = written[buffer_id]
        while over in written:
            over = written[over]
        ends = (lasts.get(over, timeline.buffers[over].died), timeline.buffers[buffer_id].died)
        lasts[over] = None if None in ends else max(end for end in ends if end is not None)
    moved = grouped((end + 1, ~over) for over, end in lasts.items() if end is not None)
    return without(_with_events_moved(timeline, moved, {~over for over in lasts}), written)


def _with_events_moved(timeline: Timeline, inserted: Mapping[int, list[int]], dropped: Collection[int]) -> Timeline:
    """Remove events, and insert others before given positions, each under the Node of the event before it."""
    events: list[int] = []
    event_nodes: list[int] = []
    previous_node = -1
    moved_to: list[int] = []
    for position, (event, node) in enumerate(zip((*timeline.events, None), (*timeline.event_nodes, -1), strict=True)):
        for new in inserted.get(position, ()):
            events.append(new)
            event_nodes.append(previous_node)
        moved_to.append(len(events))
        if event is not None and event not in dropped:
            events.append(event)
            event_nodes.append(node)
        previous_node = node
    opened = {event for event in events if event >= 0}
    born = [buffer.born for buffer in timeline.buffers]
    died = [None if buffer.id in opened else buffer.died for buffer in timeline.buffers]
    for position, event in enumerate(events):
        if event >= 0:
            born[event] = position
        else:
            died[~event] = position
    buffers = tuple(
        buffer if (buffer.born, buffer.died) == (start, end) else buffer._replace(born=start, died=end)
        for buffer, start, end in zip(timeline.buffers, born, died, strict=True)
    )
    positions = {buffer: moved_to[position] for buffer, position in timeline.streams.held.items()}
    emptied = tuple(sorted({moved_to[position] for position in timeline.streams.emptied}))
    streams = timeline.streams._replace(held=positions, emptied=emptied)
    return replace(timeline, buffers=buffers, events=tuple(events), event_nodes=tuple(event_nodes), streams=streams)

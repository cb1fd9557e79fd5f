"""A recording of a real GPU: pickles of `torch.cuda.memory._dump_snapshot`, and memlint's own histories.

Read as Recordings, which say everything of each GPU, or as a Capture, which is looked at as any other.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from memlint.base.errors import TargetError
from memlint.base.garbage import uncollected
from memlint.base.units import format_nbytes
from memlint.base.version import installed_torch
from memlint.capture.capture import Capture
from memlint.capture.histories import read_history
from memlint.capture.recorded import ALLOC, FREE, FREE_REQUESTED, RecordedBlock, Recording
from memlint.capture.snapshots import read_snapshot
from memlint.memory.records import Assumption, Buffer, Category, Phase, Streams, Trace
from memlint.targets.workload import DEFAULT_GPU, Workload

SUFFIXES: Final = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz", ".json.gz")
_GZIP: Final = b"\x1f\x8b"
_HOW: Final = "Write one with torch.cuda.memory._record_memory_history() and torch.cuda.memory._dump_snapshot(FILE)."
_DAMAGED: Final = (
    *(KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError, EOFError),
    *(zlib.error, gzip.BadGzipFile),
)


def is_recording(name: str) -> bool:
    """Return True if a file is called as a recording is."""
    return name.lower().endswith(SUFFIXES)


def read_recordings(file: str | Path) -> list[Recording]:
    """Read a file, for each GPU that recorded something or has memory; at least one.

    Raises TargetError for a file that is no recording.
    """
    try:
        with _opened(Path(file)) as (content, is_json), uncollected():
            recordings = [read_history(content)] if is_json else read_snapshot(content)
    except _DAMAGED as error:
        name = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise TargetError(f"{file} is no recording of a GPU: {name}{error}", _HOW) from error
    except OSError as error:
        raise TargetError(f"{file} cannot be read: {error.strerror}", "Is it a file?") from error
    if not any(len(each.events) or each.segments for each in recordings):
        raise TargetError(
            f"{file} has no allocations", "Call torch.cuda.memory._record_memory_history() before the step."
        )
    return recordings


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, bool]]:
    """Open a file, decompressed where it is compressed, and say whether it holds JSON."""
    with path.open("rb") as opened:
        is_compressed = opened.peek(2)[:2] == _GZIP
        content = gzip.GzipFile(fileobj=opened) if is_compressed else opened
        yield content, content.peek(1)[:1] in (b"{", b"[")


def open_recording(file: str | Path, gpu: str = DEFAULT_GPU, device: int | None = None) -> Capture:
    """Read what a real GPU recorded, of the `device` with the most events unless one is given.

    Nothing in it says which `gpu` that was. Raises TargetError for a file that is no recording.
    """
    recordings = read_recordings(file)
    recording = next((each for each in recordings if each.device == device), None)
    if recording is None:
        recording = max(recordings, key=lambda each: len(each.events))
    if not len(recording.events) and not any(not block.is_free for block in _blocks(recording)):
        raise TargetError(f"{file} has no allocations", _HOW)
    return capture_of(recording, str(file), gpu)


def _blocks(recording: Recording) -> Iterator[RecordedBlock]:
    return (block for segment in recording.segments for block in segment.blocks)


def capture_of(recording: Recording, target: str, gpu: str) -> Capture:
    """Make a Capture of the allocations of a Recording; `target` names its file."""
    events, sites = recording.events, recording.sites
    ends = FREE if FREE in events.actions else FREE_REQUESTED
    opened: list[Buffer] = []
    """With their numbers in order of opening."""
    alive: dict[int, int] = {}
    order: list[int] = []
    before: list[int] = []
    streams_of: dict[int, int] = {}

    def open_buffer(nbytes: int, stream: int, site: int, category: Category, *, has_begun: bool) -> int:
        number = len(opened)
        at = sites[site] if site >= 0 else None
        if stream:
            streams_of[number] = stream
        opened.append(
            Buffer(
                id=number,
                nbytes=nbytes,
                shape=(nbytes,),
                dtype="uint8",
                category=category,
                op=at.op if at else "",
                phase=at.phase if at else Phase.OTHER,
                step=0 if has_begun else -1,
                frame=at.frame if at else None,
                module="",
                name="",
                node=-1,
                last_used=-1,
                born=-1,
                died=None,
                nonzeros=None,
            )
        )
        return number

    places: dict[int, int] = {}
    for position, action in enumerate(events.actions):
        if action != ALLOC and action != ends:
            continue
        address, nbytes, stream = events.addresses[position], events.sizes[position], events.streams[position]
        if action == ALLOC:
            category = recording.categories.get(position, Category.OTHER)
            number = alive[address] = open_buffer(nbytes, stream, events.sites[position], category, has_begun=True)
            order.append(number)
            continue
        found = alive.pop(address, None)
        if found is None:  # it was there before the recording
            found = open_buffer(nbytes, stream, -1, Category.OTHER, has_begun=False)
            before.append(found)
            places[found] = address
        order.append(~found)
    for segment in recording.segments:
        for block in segment.blocks:
            if not block.is_free and block.address not in alive:
                number = open_buffer(block.requested, segment.stream, block.site, block.category, has_begun=False)
                before.append(number)
                places[number] = block.address
    # What was there comes first, in the order of addresses: that in which it was taken is not recorded.
    before.sort(key=lambda number: (streams_of.get(number, 0), places[number]))
    is_before = set(before)
    new_order = [*before, *(number for number in range(len(opened)) if number not in is_before)]
    numbers = [0] * len(opened)
    for new, old in enumerate(new_order):
        numbers[old] = new
    all_events = [*range(len(before)), *(numbers[each] if each >= 0 else ~numbers[~each] for each in order)]
    born: list[int] = [0] * len(opened)
    died: list[int | None] = [None] * len(opened)
    for position, number in enumerate(all_events):
        if number >= 0:
            born[number] = position
        else:
            died[~number] = position
    buffers = tuple(opened[old]._replace(id=new, born=born[new], died=died[new]) for new, old in enumerate(new_order))
    own = {numbers[old]: stream for old, stream in streams_of.items()}
    streams = {stream: place + 1 for place, stream in enumerate(dict.fromkeys(own[number] for number in sorted(own)))}
    trace = Trace(
        nodes=(),
        buffers=buffers,
        events=tuple(all_events),
        event_nodes=(-1,) * len(all_events),
        num_steps=0,
        step_nodes=(),
        assumptions=(),
        modules=(),
        torch=recording.torch or ".".join(map(str, installed_torch())),
        device=gpu,
        streams=Streams({number: streams[own[number]] for number in sorted(own)}, {}),
    )
    workload = Workload(
        name=Path(target).name.partition(".")[0],
        target=target,
        gpu=gpu,
        torch=recording.torch,
        optimizer="none",
        allocator=recording.settings,
        origin="recording",
    )
    assumptions = tuple(Assumption(text, None) for text in _notes(recording, gpu, starts_before=bool(before)))
    return Capture(workload=workload, trace=trace, optimizer=None, assumptions=assumptions)


def _notes(recording: Recording, gpu: str, *, starts_before: bool) -> Iterator[str]:
    if recording.num_recorded > 1:
        yield f"device {recording.device} is shown; {recording.num_recorded - 1} more recorded something"
    yield f"a recording does not say which GPU it was: {gpu} is taken; name it with --gpu"
    reserved = recording.peaks.get("reserved") or recording.most_reserved()
    if reserved:
        yield f"the GPU itself reserved {format_nbytes(reserved)} at most; what is said replays its events"
    if starts_before:
        yield "what was there before the recording is taken to lie side by side; how it lay is not recorded"

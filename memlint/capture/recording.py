"""A recording of a real GPU: pickles of `torch.cuda.memory._dump_snapshot`, and memlint's own histories.

Read as Recordings, which say everything of each GPU, or as a Capture, which is looked at as any other.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from memlint.base.errors import TargetError
from memlint.base.garbage import uncollected
from memlint.base.units import format_nbytes
from memlint.base.version import installed_torch
from memlint.capture.capture import Capture
from memlint.capture.histories import read_history
from memlint.capture.lifetimes import BEFORE, Lifetimes, lifetimes
from memlint.capture.plain_pickle import Source
from memlint.capture.recorded import Recording
from memlint.capture.snapshots import read_snapshot
from memlint.memory.records import Assumption, Buffer, Category, Phase, Streams, Trace
from memlint.targets.workload import DEFAULT_GPU, Workload

_GZIP: Final = b"\x1f\x8b"
_HOW: Final = "Write one with torch.cuda.memory._record_memory_history() and torch.cuda.memory._dump_snapshot(FILE)."
_DAMAGED: Final = (
    *(KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError, EOFError),
    *(zlib.error, gzip.BadGzipFile),
)


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
def _opened(path: Path) -> Iterator[tuple[Source, bool]]:
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
    capture = capture_of(recording, str(file), gpu)
    if not capture.trace.buffers:
        raise TargetError(f"{file} has no allocations", _HOW)
    return capture


def capture_of(recording: Recording, target: str, gpu: str) -> Capture:
    """Make a Capture of the allocations of a Recording; `target` names its file.

    What was there before comes first, in the order of addresses: that in which it was taken is not recorded.
    """
    alive = lifetimes(recording)
    num_before = alive.num_before
    in_order = sorted(
        [
            *((alive.born[number], number) for number in range(num_before, len(alive))),
            *((died, ~number) for number, died in enumerate(alive.died) if died < alive.num_events),
        ]
    )
    all_events = [*range(num_before), *(event for _, event in in_order)]
    born = [0] * len(alive)
    died: list[int | None] = [None] * len(alive)
    for position, event in enumerate(all_events):
        if event >= 0:
            born[event] = position
        else:
            died[~event] = position
    buffers = tuple(_buffer(recording, alive, number, born[number], died[number]) for number in range(len(alive)))
    own = {number: stream for number, stream in enumerate(alive.streams) if stream}
    streams = {stream: place + 1 for place, stream in enumerate(dict.fromkeys(own.values()))}
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
        streams=Streams({number: streams[stream] for number, stream in own.items()}, {}),
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
    assumptions = tuple(Assumption(text, None) for text in _notes(recording, gpu, starts_before=num_before > 0))
    return Capture(workload=workload, trace=trace, optimizer=None, assumptions=assumptions)


def _buffer(recording: Recording, alive: Lifetimes, number: int, born: int, died: int | None) -> Buffer:
    site = recording.site(alive.sites[number])
    nbytes, since = alive.nbytes[number], alive.born[number]
    return Buffer(
        id=number,
        nbytes=nbytes,
        shape=(nbytes,),
        dtype="uint8",
        category=recording.categories.get(since, alive.categories.get(number, Category.OTHER)),
        op=site.op if site else "",
        phase=site.phase if site else Phase.OTHER,
        step=-1 if since == BEFORE else 0,
        frame=site.frame if site else None,
        module="",
        name="",
        node=-1,
        last_used=-1,
        born=born,
        died=died,
        nonzeros=None,
    )


def _notes(recording: Recording, gpu: str, *, starts_before: bool) -> Iterator[str]:
    if recording.num_recorded > 1:
        yield f"device {recording.device} is shown; {recording.num_recorded - 1} more recorded something"
    yield f"a recording does not say which GPU it was: {gpu} is taken; name it with --gpu"
    reserved = recording.peaks.get("reserved") or recording.most_reserved()
    if reserved:
        yield f"the GPU itself reserved {format_nbytes(reserved)} at most; what is said replays its events"
    if starts_before:
        yield "what was there before the recording is taken to lie side by side; how it lay is not recorded"

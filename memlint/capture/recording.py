"""A recording of a real GPU as a Capture: pickles of `torch.cuda.memory._dump_snapshot`, and memlint's own histories.

A pickle may run code when it is read: here it is read by an unpickler that knows no globals, so that it can hold only
what a snapshot is made of: dicts, lists, tuples, texts, numbers and truth values.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from memlint.base.errors import TargetError
from memlint.base.ownership import is_installed
from memlint.base.units import format_nbytes
from memlint.base.version import installed_torch
from memlint.capture.capture import Capture
from memlint.memory.records import Assumption, Buffer, Category, Frame, Phase, Streams, Trace
from memlint.targets.workload import DEFAULT_GPU, TORCH, Workload

SUFFIXES: Final = (".pickle", ".pkl", ".json.gz")
_MOST_NBYTES: Final = 2**30
_DAMAGED: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)
_PHASES: Final = {each.value: each for each in Phase}
_CATEGORIES: Final = {each.value: each for each in Category}


class _NoGlobals(pickle.Unpickler):
    """Reads plain objects only."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse whatever is no plain object."""
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no snapshot does")


@dataclass(frozen=True, slots=True)
class _Event:
    """An allocation or, with `opens` False, its end; by address."""

    opens: bool
    address: int
    nbytes: int
    stream: int
    frame: Frame | None = None
    op: str = ""
    phase: Phase = Phase.OTHER
    category: Category = Category.OTHER


@dataclass(frozen=True, slots=True)
class _Recording:
    """The contents of a file about one GPU."""

    events: tuple[_Event, ...]
    alive_at_end: tuple[_Event, ...]
    """As allocations."""
    settings: str
    """`PYTORCH_ALLOC_CONF`."""
    reserved: int | None
    """The most bytes of segments, as the GPU had them; None where that is not recorded."""
    torch: str = ""
    notes: tuple[str, ...] = field(default=())


def is_recording(name: str) -> bool:
    """Say whether a file is called as a recording is."""
    return name.lower().endswith(SUFFIXES)


def open_recording(file: str | Path, gpu: str = DEFAULT_GPU, device: int | None = None) -> Capture:
    """Read what a real GPU recorded, of the `device` with the most events unless one is given.

    Nothing in it says which `gpu` that was. Raises TargetError for a file that is no recording.
    """
    path = Path(file)
    try:
        content = path.read_bytes()
        recording = _of_history(content) if path.name.endswith(".gz") else _of_snapshot(content, device)
    except (pickle.UnpicklingError, EOFError, zlib.error, gzip.BadGzipFile, *_DAMAGED) as error:
        raise TargetError(
            f"{file} is no recording of a GPU: {type(error).__name__}: {error}",
            "Write one with torch.cuda.memory._record_memory_history() and torch.cuda.memory._dump_snapshot(FILE).",
        ) from error
    except OSError as error:
        raise TargetError(f"{file} cannot be read: {error.strerror}", "Is it a file?") from error
    if not recording.events and not recording.alive_at_end:
        raise TargetError(
            f"{file} has no allocations", "Call torch.cuda.memory._record_memory_history() before the step."
        )
    return _capture(recording, path, str(file), gpu)


def _of_snapshot(content: bytes, device: int | None) -> _Recording:
    snapshot = _NoGlobals(io.BytesIO(content)).load()
    traces: Sequence[Sequence[Mapping[str, Any]]] = snapshot["device_traces"]
    number = max(range(len(traces)), key=lambda each: len(traces[each])) if device is None else device
    frames: dict[int, Frame | None] = {}

    def frame(entry: Mapping[str, Any]) -> Frame | None:
        listed = entry.get("frames") or ()
        if id(listed) not in frames:
            frames[id(listed)] = _frame(listed)
        return frames[id(listed)]

    events = []
    ends_at_request = not any(entry["action"] == "free_completed" for entry in traces[number])
    for entry in traces[number]:
        place = int(entry.get("addr", 0)), int(entry["size"]), int(entry.get("stream", 0))
        if entry["action"] == "alloc":
            category = _CATEGORIES.get(entry.get("category", ""), Category.OTHER)
            events.append(_Event(True, *place, frame(entry), category=category))
        elif entry["action"] == ("free_requested" if ends_at_request else "free_completed"):
            events.append(_Event(False, *place))
    alive = [
        _Event(
            True, address, int(block.get("requested_size", block["size"])), int(segment.get("stream", 0)), frame(block)
        )
        for segment in snapshot["segments"]
        if segment.get("device", 0) == number
        for address, block in _blocks(segment)
        if block["state"] != "inactive"
    ]
    settings = snapshot.get("allocator_settings") or {}
    known = settings.get("PYTORCH_CUDA_ALLOC_CONF") or settings.get("PYTORCH_ALLOC_CONF") or ""
    others = sum(bool(each) for each in traces) - 1
    notes = (f"device {number} is shown; {others} more recorded something",) if others > 0 else ()
    at_end = sum(int(each["total_size"]) for each in snapshot["segments"] if each.get("device", 0) == number)
    segments = [(str(entry["action"]), int(entry["size"])) for entry in traces[number]]
    return _Recording(tuple(events), tuple(alive), str(known), _most_reserved(segments, at_end), notes=notes)


def _blocks(segment: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    address = int(segment["address"])
    for block in segment["blocks"]:
        yield int(block.get("address", address)), block
        address += int(block["size"])


def _frame(listed: Sequence[Mapping[str, Any]]) -> Frame | None:
    """The innermost line of the project, or of a package; C++ frames and PyTorch's own are passed over."""
    lines = [
        Frame(str(each["filename"]), int(each["line"]), str(each["name"]))
        for each in listed
        if str(each.get("filename", "")).endswith(".py") and "/torch/" not in str(each["filename"]).replace("\\", "/")
    ]
    own = next((each for each in lines if not is_installed(each.path)), None)
    if own is None or lines[0] == own:
        return lines[0] if lines else None
    return lines[0]._replace(caller=own)


def _of_history(content: bytes) -> _Recording:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as opened:
        history = json.loads(opened.read(_MOST_NBYTES))
    events = []
    for action, address, nbytes, *more in history["events"]:
        stream = int(more[0]) if more else 0
        if action == "alloc":
            op, phase = (*more[1:], "", "")[:2]
            events.append(_Event(True, address, nbytes, stream, None, op, _PHASES.get(phase, Phase.OTHER)))
        elif action == "free":
            events.append(_Event(False, address, nbytes, stream))
    alive = []
    for start, _nbytes, stream, _pool, _expandable, blocks in history.get("segments_at_end") or ():
        address = start
        for size, requested, state in blocks:
            if state != "inactive":
                alive.append(_Event(True, address, requested, stream))
            address += size
    settings = (history.get("allocator_settings") or {}).get("conf") or ""
    torch = str(history.get("torch") or "")
    return _Recording(
        tuple(events), tuple(alive), settings, history["peaks"].get("reserved"), torch if TORCH.fullmatch(torch) else ""
    )


def _most_reserved(events: Sequence[tuple[str, int]], at_end: int) -> int:
    """The most bytes of segments, from those at the end back."""
    reserved = most = at_end
    for action, nbytes in reversed(events):
        if action in ("segment_alloc", "segment_map"):
            reserved -= nbytes
        elif action in ("segment_free", "segment_unmap"):
            reserved += nbytes
        most = max(most, reserved)
    return most


def _capture(recording: _Recording, path: Path, target: str, gpu: str) -> Capture:
    opened: list[_Event] = []
    alive: dict[int, int] = {}
    events: list[int] = []
    before: list[int] = []
    died: dict[int, int] = {}
    for event in recording.events:
        if event.opens:
            alive[event.address] = len(opened)
            events.append(len(opened))
            opened.append(event)
        else:
            number = alive.pop(event.address, None)
            if number is None:  # it was there before the recording
                number = len(opened)
                opened.append(event)
                before.append(number)
            events.append(~number)
    for event in recording.alive_at_end:
        if event.address not in alive:
            before.append(len(opened))
            opened.append(event)
    # What was there comes first, in the order of addresses: that in which it was taken is not recorded.
    order = sorted(before, key=lambda number: (opened[number].stream, opened[number].address))
    numbers = {old: new for new, old in enumerate([*order, *(n for n in range(len(opened)) if n not in set(order))])}
    all_events = [*range(len(order)), *(numbers[e] if e >= 0 else ~numbers[~e] for e in events)]
    born: dict[int, int] = {}
    for position, number in enumerate(all_events):
        (born if number >= 0 else died)[number if number >= 0 else ~number] = position
    by_number = sorted(numbers.items(), key=lambda item: item[1])
    buffers = [
        _buffer(new, opened[old], born[new], died.get(new), has_begun=old not in before) for old, new in by_number
    ]
    own = {new: opened[old].stream for old, new in by_number if opened[old].stream}
    streams = {number: place + 1 for place, number in enumerate(dict.fromkeys(own.values()))}
    notes = [
        *recording.notes,
        f"a recording does not say which GPU it was: {gpu} is taken; name it with --gpu",
    ]
    if recording.reserved is not None:
        notes.append(
            f"the GPU itself reserved {format_nbytes(recording.reserved)} at most; what is said replays its events"
        )
    if order:
        notes.append("what was there before the recording is taken to lie side by side; how it lay is not recorded")
    assumptions = tuple(Assumption(text, None) for text in notes)
    torch = recording.torch or ".".join(map(str, installed_torch()))
    trace = Trace(
        nodes=(),
        buffers=tuple(buffers),
        events=tuple(all_events),
        event_nodes=(-1,) * len(all_events),
        num_steps=0,
        step_nodes=(),
        assumptions=(),
        modules=(),
        torch=torch,
        device=gpu,
        streams=Streams({number: streams[stream] for number, stream in own.items()}, {}),
    )
    workload = Workload(
        name=path.name.partition(".")[0],
        target=target,
        gpu=gpu,
        torch=recording.torch,
        optimizer="none",
        allocator=recording.settings,
        origin="recording",
    )
    return Capture(workload=workload, trace=trace, optimizer=None, assumptions=assumptions)


def _buffer(number: int, event: _Event, born: int, died: int | None, *, has_begun: bool) -> Buffer:
    return Buffer(
        id=number,
        nbytes=event.nbytes,
        shape=(event.nbytes,),
        dtype="uint8",
        category=event.category,
        op=event.op,
        phase=event.phase,
        step=0 if has_begun else -1,
        frame=event.frame,
        module="",
        name="",
        node=-1,
        last_used=-1,
        born=born,
        died=died,
        nonzeros=None,
    )

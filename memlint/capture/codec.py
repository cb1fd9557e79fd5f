"""The file of a Capture, `step.memlint`: written once, mapped and read without torch. docs/capture.md describes it.

In order: the magic, the length of the header, the header as JSON, then columns of whole numbers, little-endian, each
from a multiple of eight bytes on. The header holds everything that comes once, texts that are shared, and for each
column its place, its count and the width of its numbers.
"""

import json
import mmap
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

from memlint.base.errors import TargetError
from memlint.base.garbage import long_lived, uncollected
from memlint.capture.capture import Capture, OtherHost, ScriptFacts, StartedProgram, WrittenFile
from memlint.memory.records import (
    Assumption,
    Buffer,
    Category,
    Collective,
    Doubt,
    Frame,
    Geometry,
    Node,
    Phase,
    Round,
    Streams,
    Trace,
    Whole,
    World,
)
from memlint.targets.script import Amendment, Started
from memlint.targets.workload import InputSpec, Workload

SUFFIX: Final = ".memlint"
VERSION: Final = 1
_MAGIC: Final = b"MEMLINT\n"
_LENGTH_NBYTES: Final = 8
_ALIGNMENT: Final = 8
_MOST_HEADER: Final = 2**29
_Code: TypeAlias = Literal["b", "h", "i", "q"]
_CODES: Final[tuple[tuple[_Code, int], ...]] = (("b", 1), ("h", 2), ("i", 4), ("q", 8))
_PHASES: Final = tuple(Phase)
_CATEGORIES: Final = tuple(Category)
_NONE: Final = -1
"""For a place, a number or a text that is missing."""
_OF_WORKLOAD: Final = (
    *("name", "target", "path", "qualname", "mode", "batch", "dtype", "optimizer", "gpu", "torch", "context"),
    *("allocator", "compile", "strategy", "world_size", "rank", "origin", "cache"),
)
_Kind: TypeAlias = Literal["number", "number or none", "flag", "text", "shape", "frame", "phase", "category", "tuple"]
"""The values of a field, each of which is one number in a column; of a tuple only the length is."""
_OF_NODE: Final[Mapping[str, _Kind]] = {
    "op": "text", "phase": "phase", "step": "number", "frame": "frame", "module": "text", "inputs": "tuple",
    "outputs": "tuple", "event": "number", "is_by_hand": "flag",
}  # fmt: skip
_OF_BUFFER: Final[Mapping[str, _Kind]] = {
    "nbytes": "number", "shape": "shape", "dtype": "text", "category": "category", "op": "text", "phase": "phase",
    "step": "number", "frame": "frame", "module": "text", "name": "text", "node": "number", "last_used": "number",
    "born": "number", "died": "number or none", "nonzeros": "number or none", "is_in_cycle": "flag",
}  # fmt: skip
"""Fields of Nodes and Buffers, in their order, less the position in the Trace."""
_OF_TRACE: Final = ("num_steps", "torch", "device", "reads_allocator")
_OF_CAPTURE: Final = ("optimizer", "guessed", "loads_everything", "memlint")
_DAMAGED: Final = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError)

_Value = TypeVar("_Value")


def save(capture: Capture, file: Path) -> int:
    """Write a Capture; give the bytes of the file. Raises TargetError where that is not possible."""
    try:
        return file.write_bytes(encode(capture))
    except OSError as error:
        raise TargetError(f"{file} cannot be written: {error.strerror}", "Name another file with -o.") from error


def open_capture(file: str | Path) -> Capture:
    """Read a Capture from its file. Raises TargetError for a file that is not there or is none."""
    path = Path(file)
    try:
        with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return decode(mapped, str(file))
    except FileNotFoundError:
        raise TargetError(
            f"{file} does not exist", "Write one with memlint capture model.py -o step.memlint."
        ) from None
    except (OSError, ValueError) as error:
        raise _unreadable(str(file), str(error)) from error


def encode(capture: Capture) -> bytes:
    """Give the file's bytes."""
    with uncollected():
        return _Encoder().encoded(capture)


def decode(content: bytes | mmap.mmap | memoryview, name: str = "the capture") -> Capture:
    """Read a Capture out of its bytes; errors speak of `name`. Raises TargetError."""
    with memoryview(content) as view, long_lived():
        if bytes(view[: len(_MAGIC)]) != _MAGIC:
            raise _unreadable(name, "it does not begin as one")
        try:
            start = len(_MAGIC) + _LENGTH_NBYTES
            length = int.from_bytes(view[len(_MAGIC) : start], "little")
            if length > min(_MOST_HEADER, len(view)):
                raise ValueError("it ends in its header")
            header = json.loads(bytes(view[start : start + length]))
            if header["version"] > VERSION:
                raise _unreadable(name, f"it has version {header['version']}, and this memlint reads up to {VERSION}")
            with _Decoder(header, view) as decoder:
                return decoder.capture()
        except _DAMAGED as error:
            raise _unreadable(name, f"it is damaged ({type(error).__name__}: {error})") from error


def _unreadable(name: str, reason: str) -> TargetError:
    return TargetError(f"{name} is no capture that can be read: {reason}", "Write it again with memlint capture.")


class _Shared:
    """Values that are written once and named by their number."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def column(self, values: Iterable[Any]) -> list[int]:
        numbers = self.numbers
        return [numbers.setdefault(value, len(numbers)) for value in values]


def _column_name(kind: str, field: str) -> str:
    return f"{kind}_{field.removeprefix('is_')}"


class _Encoder:
    def __init__(self) -> None:
        self.columns: dict[str, Sequence[int]] = {}
        self.texts = _Shared()
        self.frames = _Shared()
        self.layouts = _Shared()
        self.shapes = _Shared()

    def encoded(self, capture: Capture) -> bytes:
        trace = capture.trace
        self._records("node", trace.nodes, _OF_NODE)
        geometries = [geometry for node in trace.nodes for geometry in (*node.inputs, *node.outputs)]
        self.columns["geometry_buffer"] = [geometry.buffer for geometry in geometries]
        self.columns["geometry_layout"] = self.layouts.column(geometry[1:] for geometry in geometries)
        self._records("buffer", trace.buffers, _OF_BUFFER)
        self.columns |= {
            "events": trace.events,
            "event_nodes": trace.event_nodes,
            "with_gradient": sorted(trace.with_gradient),
        }
        if trace.whole is not None:
            self.columns |= {"whole_sizes": trace.whole.sizes, "whole_events": trace.whole.events}
        header = {
            "version": VERSION,
            **{name: getattr(capture, name) for name in _OF_CAPTURE},
            "workload": workload_fields(capture.workload),
            "assumptions": [self._assumption(each) for each in capture.assumptions],
            "assumed": sorted(capture.assumed),
            "script": None if capture.script is None else self._script(capture.script),
            "trace": self._trace(trace),
        }
        header |= self._shared()
        return _assembled(header, self.columns)

    def _shared(self) -> dict[str, Any]:
        frames = [[*self._place(each), each.caller and self._place(each.caller)] for each in self.frames.numbers]
        return {
            "frames": frames,
            "layouts": [[shape, stride, self.texts.number(dtype)] for shape, stride, dtype in self.layouts.numbers],
            "shapes": list(self.shapes.numbers),
            "texts": list(self.texts.numbers),
        }

    def _place(self, frame: Frame) -> tuple[int, int, int]:
        return self.texts.number(frame.path), frame.line, self.texts.number(frame.function)

    def _frame(self, frame: Frame | None) -> int:
        return _NONE if frame is None else self.frames.number(frame)

    def _records(self, kind: str, records: Sequence[Any], fields_of: Mapping[str, _Kind]) -> None:
        for field, held in fields_of.items():
            self.columns[_column_name(kind, field)] = self._written(held, [getattr(each, field) for each in records])

    def _written(self, held: _Kind, values: list[Any]) -> Sequence[int]:
        match held:
            case "text":
                return self.texts.column(values)
            case "shape":
                return self.shapes.column(values)
            case "frame":
                return list(map(self._frame, values))
            case "phase":
                return list(map(_PHASES.index, values))
            case "category":
                return list(map(_CATEGORIES.index, values))
            case "tuple":
                return list(map(len, values))
            case "flag":
                return list(map(int, values))
            case "number or none":
                return [_NONE if value is None else value for value in values]
        return values

    def _assumption(self, assumption: Assumption) -> list[Any]:
        return [assumption.text, self._frame(assumption.frame), assumption.found]

    def _trace(self, trace: Trace) -> dict[str, Any]:
        streams = trace.streams
        return {
            **{name: getattr(trace, name) for name in _OF_TRACE},
            "step_nodes": trace.step_nodes,
            "assumptions": [self._assumption(each) for each in trace.assumptions],
            "modules": trace.modules,
            "doubts": trace.doubts,
            "own_streams": list(streams.own.items()),
            "held": list(streams.held.items()),
            "first_after_index": streams.first_after_index,
            "oldest_first": streams.oldest_first,
            "emptied": streams.emptied,
            "collectives": trace.collectives,
            "world": trace.world,
            "trained": [sorted(each) for each in trace.trained],
            "switches": trace.switches,
            "seeded": sorted(trace.seeded),
            "without_overload": sorted(trace.without_overload),
            "rounds": trace.rounds,
            "graph_breaks": [self._frame(each) for each in trace.graph_breaks],
            "whole_doubts": None if trace.whole is None else trace.whole.doubts,
        }

    def _script(self, script: ScriptFacts) -> dict[str, Any]:
        own = {field.name: getattr(script, field.name) for field in fields(script)}
        return own | {
            "writes": [[each.path, each.nbytes, self._frame(each.frame)] for each in script.writes],
            "connections": [[each.host, self._frame(each.frame)] for each in script.connections],
            "programs": [[each.command, each.is_offline, self._frame(each.frame)] for each in script.programs],
        }


def workload_fields(workload: Workload) -> dict[str, Any]:
    """Give what JSON says of a Workload: all but arguments and examples, which may be any objects."""
    return {
        **{name: getattr(workload, name) for name in _OF_WORKLOAD},
        "inputs": None if workload.inputs is None else [asdict(each) for each in workload.inputs],
        "loss": workload.loss,
        "dimensions": dict(workload.dimensions),
        "assumed": sorted(workload.assumed),
        **({"built_by": workload.built_by} if workload.built_by else {}),
    }


class _Column(NamedTuple):
    """The position of a column behind the header, the count of its numbers, and their type as in `array`."""

    offset: int
    length: int
    code: _Code


def _assembled(header: dict[str, Any], columns: Mapping[str, Sequence[int]]) -> bytes:
    parts: list[bytes] = []
    places: dict[str, _Column] = {}
    offset = 0
    for name, values in columns.items():
        code = _code(values)
        numbers = array(code, values)
        if sys.byteorder == "big":
            numbers.byteswap()
        content = numbers.tobytes()
        places[name] = _Column(offset, len(values), code)
        padding = -len(content) % _ALIGNMENT
        parts += (content, bytes(padding))
        offset += len(content) + padding
    text = json.dumps({**header, "columns": places}, separators=(",", ":")).encode()
    text += b" " * (-(len(_MAGIC) + _LENGTH_NBYTES + len(text)) % _ALIGNMENT)
    return b"".join((_MAGIC, len(text).to_bytes(_LENGTH_NBYTES, "little"), text, *parts))


def _code(values: Sequence[int]) -> _Code:
    """The narrowest type that holds all values."""
    least, most = (min(values), max(values)) if values else (0, 0)
    for code, nbytes in _CODES:
        if -(1 << (8 * nbytes - 1)) <= least and most < 1 << (8 * nbytes - 1):
            return code
    raise OverflowError("a number needs more than 64 bits")


class _Decoder:
    def __init__(self, header: dict[str, Any], view: memoryview) -> None:
        self._header = header
        places = header["columns"]
        length = int.from_bytes(view[len(_MAGIC) : len(_MAGIC) + _LENGTH_NBYTES], "little")
        self._body = view[len(_MAGIC) + _LENGTH_NBYTES + length :]
        self._places = {name: _Column(*place) for name, place in places.items()}
        self._texts: list[str] = header["texts"]
        self._frames = [
            Frame(*self._place(*own), None if caller is None else Frame(*self._place(*caller)))
            for *own, caller in header["frames"]
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._body.release()

    def capture(self) -> Capture:
        header = self._header
        script = header["script"]
        return Capture(
            workload=workload_of(header["workload"]),
            trace=self._trace(header["trace"]),
            assumptions=tuple(map(self._assumption, header["assumptions"])),
            assumed=frozenset(header["assumed"]),
            script=None if script is None else self._script(script),
            **{name: header[name] for name in _OF_CAPTURE},
        )

    def _place(self, path: int, line: int, function: int) -> tuple[str, int, str]:
        return self._texts[path], line, self._texts[function]

    def _column(self, name: str) -> list[int]:
        offset, count, code = self._places[name]
        with self._body[offset : offset + count * dict(_CODES)[code]] as part:
            if sys.byteorder == "big":
                numbers = array(code, part.tobytes())
                numbers.byteswap()
                return numbers.tolist()
            with part.cast(code) as column:
                if len(column) != count:
                    raise ValueError(f"column {name} is not whole")
                return list(column)

    def _fields(self, kind: str, fields_of: Mapping[str, _Kind]) -> dict[str, Iterable[Any]]:
        return {field: self._read(held, self._column(_column_name(kind, field))) for field, held in fields_of.items()}

    def _read(self, held: _Kind, numbers: list[int]) -> Iterable[Any]:
        match held:
            case "text":
                return _picked(self._texts, numbers)
            case "shape":
                return _picked([tuple(shape) for shape in self._header["shapes"]], numbers)
            case "frame":
                return _picked([*self._frames, None], numbers)
            case "phase":
                return _picked(_PHASES, numbers)
            case "category":
                return _picked(_CATEGORIES, numbers)
            case "flag":
                return map(bool, numbers)
            case "number or none":
                return [None if number == _NONE else number for number in numbers]
        return numbers

    def _nodes(self) -> tuple[Node, ...]:
        layouts = [
            (tuple(shape), tuple(stride), self._texts[dtype]) for shape, stride, dtype in self._header["layouts"]
        ]
        of_geometries = _picked(layouts, self._column("geometry_layout"))
        geometries = [
            Geometry(buffer, *layout)
            for buffer, layout in zip(self._column("geometry_buffer"), of_geometries, strict=True)
        ]
        values = self._fields("node", _OF_NODE)
        counts = [n for pair in zip(values["inputs"], values["outputs"], strict=True) for n in pair]
        parts = [tuple(geometries[start:end]) for start, end in pairwise((0, *accumulate(counts)))]
        values |= {"inputs": parts[0::2], "outputs": parts[1::2]}
        return tuple(map(Node, range(self._places["node_op"].length), *values.values()))

    def _buffers(self) -> tuple[Buffer, ...]:
        values = self._fields("buffer", _OF_BUFFER)
        return tuple(map(Buffer, range(self._places["buffer_nbytes"].length), *values.values()))

    def _trace(self, header: dict[str, Any]) -> Trace:
        own, held = dict(map(tuple, header["own_streams"])), dict(map(tuple, header["held"]))
        world = header["world"]
        return Trace(
            nodes=self._nodes(),
            buffers=self._buffers(),
            events=tuple(self._column("events")),
            event_nodes=tuple(self._column("event_nodes")),
            step_nodes=tuple(header["step_nodes"]),
            assumptions=tuple(map(self._assumption, header["assumptions"])),
            modules=tuple((path, kind) for path, kind in header["modules"]),
            doubts=tuple(Doubt(*each) for each in header["doubts"]),
            streams=Streams(
                own,
                held,
                header["first_after_index"],
                header.get("oldest_first", False),
                tuple(header.get("emptied", ())),
            ),
            collectives=tuple(_collective(each) for each in header["collectives"]),
            world=None if world is None else World(*world),
            trained=tuple(map(frozenset, header["trained"])),
            with_gradient=frozenset(self._column("with_gradient")),
            switches=tuple((path, switch) for path, switch in header["switches"]),
            seeded=frozenset(header["seeded"]),
            without_overload=frozenset(header["without_overload"]),
            rounds=tuple(Round(*each) for each in header.get("rounds", ())),
            graph_breaks=tuple(map(self._frames.__getitem__, header.get("graph_breaks", ()))),
            whole=self._whole(header.get("whole_doubts")),
            **{name: header[name] for name in _OF_TRACE},
        )

    def _whole(self, doubts: list[Any] | None) -> Whole | None:
        if doubts is None:
            return None
        sizes, events = (array("q", self._column(name)) for name in ("whole_sizes", "whole_events"))
        return Whole(sizes, events, tuple(Doubt(*each) for each in doubts))

    def _frame(self, number: int) -> Frame | None:
        return None if number == _NONE else self._frames[number]

    def _assumption(self, each: list[Any]) -> Assumption:
        text, frame, found = each
        return Assumption(text, self._frame(frame), found)

    def _script(self, header: dict[str, Any]) -> ScriptFacts:
        return ScriptFacts(
            **{"happened": "trained" if header["num_steps"] else "evaluated"}
            | header
            | {
                "seconds": tuple(header["seconds"]),
                "not_guarded": tuple(header["not_guarded"]),
                "error": _failure(header["error"]),
                "stop": _failure(header.get("stop")),
                "amendment": Amendment(*amendment) if (amendment := header.get("amendment")) else None,
                "started": _started(header.get("started")),
                "own": tuple(header.get("own", ())),
                "writes": tuple(WrittenFile(path, n, self._frame(frame)) for path, n, frame in header["writes"]),
                "connections": tuple(OtherHost(host, self._frame(frame)) for host, frame in header["connections"]),
                "programs": tuple(
                    StartedProgram(text, offline, self._frame(frame)) for text, offline, frame in header["programs"]
                ),
            }
        )


def _started(fields: list[Any] | None) -> Started | None:
    if fields is None:
        return None
    words, folder, variables = fields
    return Started(tuple(words), folder, tuple((name, value) for name, value in variables))


def _failure(texts: list[Any] | None) -> tuple[str, str, tuple[str, ...]] | None:
    """Read message, hint and traceback of what ended a script."""
    return None if texts is None else (texts[0], texts[1], tuple(texts[2]))


def _picked(values: Sequence[_Value], numbers: Iterable[int]) -> list[_Value]:
    return list(map(values.__getitem__, numbers))


def _collective(each: list[Any]) -> Collective:
    made = Collective(*each)
    return made._replace(neighbours=(made.neighbours[0], made.neighbours[1]))


def workload_of(header: dict[str, Any]) -> Workload:
    """Read what `workload_fields` gave."""
    inputs = header["inputs"]
    return Workload(
        **header
        | {
            "inputs": None if inputs is None else tuple(map(_input, inputs)),
            "assumed": frozenset(header["assumed"]),
        }
    )


def _input(each: dict[str, Any]) -> InputSpec:
    runs = tuple((value, count) for value, count in each["runs"])
    return InputSpec(**each | {"shape": tuple(each["shape"]), "runs": runs})

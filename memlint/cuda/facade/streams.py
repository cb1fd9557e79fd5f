"""CUDA streams and events: the current stream, and the streams for which the program waits.

Everything runs in order here, so nothing is ever pending. But a storage belongs to the stream that was current at its
birth, and memory that another stream uses is certainly free only after the program has waited for that stream.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.private import compiled, cuda_functions
from memlint.accelerator.sparse import parts_of
from memlint.cuda.simulated import simulated

_STREAMS_PER_POOL = 32
_HIGHEST_PRIORITY = 3
"""Highest level of priority. For each priority, 0 to -3, a process has `_STREAMS_PER_POOL` streams, handed out in turn:
kStreamsPerPoolBits and max_compile_time_stream_priorities in c10/cuda/CUDAStream.h."""


def _current(number: int) -> CudaStream:
    """Return the stream with this number."""
    stream = CudaStream.__new__(CudaStream)
    stream._be(number)
    return stream


class Stream:
    """A CUDA stream."""

    cuda_stream: int
    native_handle: int
    stream_id: int
    priority: int
    device = torch.device("cuda", 0)
    device_index = 0
    device_type = 1
    """CUDA's number in c10/core/DeviceType.h."""

    def __init__(self, _device: Any = None, priority: int = 0, **_: Any) -> None:
        level = min(max(-priority, 0), _HIGHEST_PRIORITY)
        counts = simulated().streams_made
        self._be(1 + level * _STREAMS_PER_POOL + counts[level] % _STREAMS_PER_POOL)
        counts[level] += 1

    def _be(self, number: int) -> None:
        self.cuda_stream = self.native_handle = self.stream_id = number
        self.priority = -((number - 1) // _STREAMS_PER_POOL) if number else 0
        self._outer: list[int] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def __enter__(self) -> Stream:
        ledger = state.current.ledger
        self._outer.append(ledger.stream)
        ledger.stream = self.stream_id
        return self

    def __exit__(self, *_: object) -> None:
        state.current.ledger.stream = self._outer.pop()

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority."""
        return 0, -_HIGHEST_PRIORITY

    def query(self) -> bool:
        """Return True: nothing is ever pending."""
        return True

    def synchronize(self) -> None:
        """Wait for all work queued on the stream."""
        state.current.ledger.synchronize(self.stream_id)

    def is_capturing(self) -> bool:
        """Return True while a CUDA graph is captured."""
        return simulated().captures

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event after the work queued so far."""
        event = event or CudaEvent()
        event.record(self)
        return event

    def wait_event(self, _: Event) -> None:
        """Do nothing: no work is pending."""

    wait_stream = wait_event


class Event:
    """A CUDA event, which has always happened."""

    device = torch.device("cuda", 0)

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_event = self.event_id = id(self)
        self._recorded: tuple[int, int] | None = None
        """The stream, and the position in the ledger's events."""

    def record(self, stream: Stream | None = None) -> None:
        """Record the work queued so far on a stream, or on the current one."""
        ledger = state.current.ledger
        self._recorded = (ledger.stream if stream is None else stream.stream_id, len(ledger.events))

    def wait(self, _: Stream | None = None) -> None:
        """Do nothing: no work is pending."""

    def query(self) -> bool:
        """Return True: nothing is ever pending."""
        return True

    def synchronize(self) -> None:
        """Wait for the work that the event has recorded."""
        if self._recorded is not None:
            state.current.ledger.synchronize(*self._recorded)

    def elapsed_time(self, _: Event) -> float:
        """Return 1 millisecond: times are not modelled, and rates can be computed."""
        return 1.0


class CudaStream(Stream):
    """Stand-in for `torch.cuda.Stream`; PyTorch's stream of any device is another class."""


class CudaEvent(Event):
    """Stand-in for `torch.cuda.Event`."""


class _StreamContext:
    """Stand-in for `torch.cuda.StreamContext`: its stream is current inside; None leaves the current one."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()


def _as_current(stream: Stream | None) -> _StreamContext:
    return _StreamContext(stream)


def _set_current(stream: Stream) -> None:
    state.current.ledger.stream = stream.stream_id


def _record_stream(tensor: torch.Tensor, stream: Stream) -> None:
    if is_virtual(tensor):
        for part in parts_of(tensor):
            entry = entry_of(part)
            if entry.counted:
                entry.ledger.use(entry.number, stream.stream_id)


def _current_stream(device: Any = None) -> Stream:
    return _current(state.current.ledger.stream)


def _external(data_ptr: int, device: Any = None) -> Stream:
    """Return a stream that another library made: a pool of its own, unless it is one of PyTorch's."""
    return _current(data_ptr)


def _default_stream(device: Any = None) -> Stream:
    return _current(0)


def _synchronize(device: Any = None) -> None:
    state.current.ledger.synchronize()


def _as_new_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy a function: Dynamo has a handler for each function of PyTorch, and refuses a second one."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def patches() -> list[tuple[Any, str, Any]]:
    """Return the patches while a GPU is simulated: owner, name, replacement."""
    functions: dict[Any, dict[str, Callable[..., Any]]] = {
        torch.cuda: {
            "Stream": CudaStream,
            "Event": CudaEvent,
            **dict.fromkeys(("ExternalStream", "get_stream_from_external"), _external),
            "current_stream": _current_stream,
            "default_stream": _default_stream,
            "set_stream": _set_current,
            "stream": _as_current,
            "StreamContext": _StreamContext,
            "synchronize": _synchronize,
        },
        torch: {"Stream": Stream, "Event": Event},
        torch.accelerator: {
            "current_stream": _as_new_function(_current_stream),
            "set_stream": _as_new_function(_set_current),
            "synchronize": _as_new_function(_synchronize),
        },
        torch.Tensor: {"record_stream": _record_stream},
        compiled: cuda_functions(
            {"getCurrentRawStream": lambda *_: state.current.ledger.stream, "synchronize": _synchronize}
        ),
    }
    return [(owner, name, value) for owner, each in functions.items() for name, value in each.items()]

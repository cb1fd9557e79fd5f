"""Who holds a Buffer: the step runs again until its peak, and there the variables of the program let go of it.

That a variable leads to a storage does not mean that the storage goes with it: autograd, a function further out or a
library may hold it too. So the variables found are bound to None, and what counts is which storages that ends.
"""

import ctypes
import gc
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch

from memlint.accelerator import state
from memlint.accelerator.kernel import Kernel
from memlint.base.ownership import is_memlint, is_users
from memlint.base.variables import variables_of
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.retention import Holder
from memlint.session.variables import attributes_of, entries_of, frame_of_code, tensors_in
from memlint.tracing.recorder import Program, trace_program

_DEPTH = 3
"""How far into containers and objects a variable is searched."""


class _Reached(BaseException):
    """The peak is reached; nothing after it matters. No handler of user code catches it."""


class _Name(NamedTuple):
    """What a `del` takes: a local variable, or an attribute of the object that one is."""

    place: FrameType | dict[str, Any]
    """The function, or the attributes of the object."""
    name: str
    text: str
    """As it is written."""

    @property
    def key(self) -> tuple[int, str]:
        """The same however many variables lead to the object."""
        return id(self.place), self.name

    def unbind(self) -> None:
        """Let go of the value. The program cannot run on."""
        if isinstance(self.place, FrameType):
            before = {*map(id, gc.get_referents(self.place))}
            self.place.f_locals[self.name] = None
            if sys.version_info < (3, 13):  # where f_locals is a copy
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(self.place), ctypes.c_int(0))
            elif sys.version_info >= (3, 14):  # where the frame keeps what was overwritten, in a new tuple
                for kept in gc.get_referents(self.place):
                    if isinstance(kept, tuple) and id(kept) not in before:
                        _empty(kept)
        else:
            self.place[self.name] = None


def _empty(kept: tuple[Any, ...]) -> None:
    """Let a tuple refer to None alone: CPython's frames have theirs for what may be borrowed, and go unread."""
    for index, item in enumerate(kept):
        place = id(kept) + tuple.__basicsize__ + index * ctypes.sizeof(ctypes.c_void_p)
        ctypes.c_void_p.from_address(place).value = id(None)
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(item))


class _Way(NamedTuple):
    """How a function comes to a Buffer."""

    path: str
    """As it is written, `outputs.logits[0]`."""
    name: _Name
    frame: FrameType


class _Search:
    """An observer that searches the variables once the ledger has passed an event."""

    def __init__(self, event: int, buffer_ids: Collection[int]) -> None:
        self.event = event
        self.buffer_ids = frozenset(buffer_ids)
        self.holders: dict[int, Holder] = {}
        self.is_over = False

    def started(self, kernel: Kernel) -> None:
        """Nothing is decided before a kernel has run."""

    def failed(self) -> None:
        """A kernel that raises changes nothing."""

    def viewed(self) -> None:
        """A view takes nothing."""

    def finished(self, _inputs: list[torch.Tensor], _outputs: list[torch.Tensor]) -> None:
        """Search if the peak is behind."""
        if len(state.current.ledger.events) > self.event and not self.is_over:
            self.is_over = True
            self._search(sys._getframe(2))
            raise _Reached

    def _search(self, innermost: FrameType) -> None:
        ways: defaultdict[int, dict[tuple[int, str], _Way]] = defaultdict(dict)
        for frame in _editable(innermost):
            for number, way in _ways(frame, self.buffer_ids):
                ways[number].setdefault(way.name.key, way)
        alone = {number: [*each.values()] for number, each in ways.items() if _are_of_one_function(each.values())}
        before = len(state.current.ledger.events)
        for each in alone.values():
            for way in each:
                way.name.unbind()
        for event in state.current.ledger.events[before:]:
            if ~event in alone:
                first, *_ = each = alone[~event]
                place = frame_of_code(first.frame.f_code, first.frame.f_lineno)
                self.holders[~event] = Holder(first.path, place, tuple(way.name.text for way in each))


def _editable(frame: FrameType | None) -> Iterator[FrameType]:
    """The running functions that the user wrote, and memlint's own, from this one outwards."""
    while frame is not None:
        if is_users(frame.f_code.co_filename) or is_memlint(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _ways(frame: FrameType, buffer_ids: Collection[int]) -> Iterator[tuple[int, _Way]]:
    """The Buffers among `buffer_ids` that variables of the function lead to."""
    for variable, value in variables_of(frame).items():
        attributes, seen, depth = attributes_of(value), {id(value)}, _DEPTH - 1
        names = [(_Name(vars(value), name, f"{variable}.{name}"), item) for name, item in attributes]
        if not attributes:
            names, seen, depth = [(_Name(frame, variable, variable), value)], set(), _DEPTH
        for name, item in names:
            for path, tensor in tensors_in(item, name.text, depth, set(seen), dotted=True):
                for entry in entries_of(tensor):
                    if entry.number in buffer_ids:
                        yield entry.number, _Way(path, name, frame)


def _are_of_one_function(ways: Iterable[_Way]) -> bool:
    """Whether one function can let go: what it was given, the function that called it holds as well.

    All of memlint's are the training loop that stands for the user's.
    """
    frames = (way.frame for way in ways)
    return len({0 if is_memlint(frame.f_code.co_filename) else id(frame) for frame in frames}) == 1


def find_holders(
    program: Program,
    device: Device,
    event: int,
    buffer_ids: Collection[int],
    allocator: AllocatorSettings | None = None,
) -> dict[int, Holder]:
    """Who alone holds which of `buffer_ids` at `event` of a fresh `program`'s trace.

    Missing is what stays when the variables of one function of the user's let go of it.
    """
    search = _Search(event, buffer_ids)
    observers = state.current.observers
    observers.append(search)
    try:
        trace_program(program, device, allocator)
    except BaseException:  # clean-up of the program's may fail over a variable that is None now
        if not search.is_over:
            raise
    finally:
        observers.remove(search)
    return search.holders

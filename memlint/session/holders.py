"""Holders of a Buffer: the step runs again until its peak, and there the program's variables are released.

A variable that leads to a storage need not be its only holder: autograd, an outer function or a library may hold it
too. So these variables are bound to None, and the storages that die of it count.
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
from memlint.base.ownership import is_memlint, is_users
from memlint.base.variables import variables_of
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.retention import Holder
from memlint.session.variables import attributes_of, entries_of, frame_of_code, tensors_in
from memlint.tracing.recorder import Program, trace_program

_DEPTH = 3
"""Depth of containers and objects to which a variable is searched."""


class _PeakReached(BaseException):
    """Control flow: the peak is reached, and nothing after it matters. No handler of user code catches it."""


class _Name(NamedTuple):
    """The target of a `del`: a local variable, or an attribute of the object that a variable is."""

    place: FrameType | dict[str, Any]
    """The function, or the attributes of the object."""
    name: str
    text: str
    """The name as code."""

    @property
    def key(self) -> tuple[int, str]:
        """The same key however many variables lead to the object."""
        return id(self.place), self.name

    def unbind(self) -> None:
        """Release the value. The program cannot run on."""
        if isinstance(self.place, FrameType):
            before = {*map(id, gc.get_referents(self.place))}
            self.place.f_locals[self.name] = None
            if sys.version_info < (3, 13):  # here f_locals is a copy
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(self.place), ctypes.c_int(0))
            elif sys.version_info >= (3, 14):  # here the frame keeps the overwritten value, in a new tuple
                for kept in gc.get_referents(self.place):
                    if isinstance(kept, tuple) and id(kept) not in before:
                        _empty(kept)
        else:
            self.place[self.name] = None


def _empty(kept: tuple[Any, ...]) -> None:
    """Let a tuple refer to None alone: CPython's frames keep one for borrowed references, and nobody reads it."""
    for index, item in enumerate(kept):
        place = id(kept) + tuple.__basicsize__ + index * ctypes.sizeof(ctypes.c_void_p)
        ctypes.c_void_p.from_address(place).value = id(None)
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(item))


class _PathToBuffer(NamedTuple):
    """Path from a function to a Buffer."""

    path: str
    """Path as code, `outputs.logits[0]`."""
    name: _Name
    frame: FrameType


class _Search(state.Observer):
    """An observer that searches the variables once the ledger has passed an event."""

    def __init__(self, event: int, buffer_ids: Collection[int]) -> None:
        self.event = event
        self.buffer_ids = frozenset(buffer_ids)
        self.holders: dict[int, Holder] = {}
        self.is_over = False

    def finished(self, _inputs: list[torch.Tensor], _outputs: list[torch.Tensor]) -> None:
        """Search once the peak has passed."""
        if len(state.current.ledger.events) > self.event and not self.is_over:
            self.is_over = True
            self._search(sys._getframe(2))
            raise _PeakReached

    def _search(self, innermost: FrameType) -> None:
        ways: defaultdict[int, dict[tuple[int, str], _PathToBuffer]] = defaultdict(dict)
        for frame in _editable(innermost):
            for number, way in _paths_to(frame, self.buffer_ids):
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
    """Yield the running functions of the user and of memlint, from this one outwards."""
    while frame is not None:
        if is_users(frame.f_code.co_filename) or is_memlint(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _paths_to(frame: FrameType, buffer_ids: Collection[int]) -> Iterator[tuple[int, _PathToBuffer]]:
    """Yield the paths from the function's variables to the Buffers among `buffer_ids`."""
    for variable, value in variables_of(frame).items():
        attributes, seen, depth = attributes_of(value), {id(value)}, _DEPTH - 1
        names = [(_Name(vars(value), name, f"{variable}.{name}"), item) for name, item in attributes]
        if not attributes:
            names, seen, depth = [(_Name(frame, variable, variable), value)], set(), _DEPTH
        for name, item in names:
            for path, tensor in tensors_in(item, name.text, depth, set(seen), dotted=True):
                for entry in entries_of(tensor):
                    if entry.number in buffer_ids:
                        yield entry.number, _PathToBuffer(path, name, frame)


def _are_of_one_function(ways: Iterable[_PathToBuffer]) -> bool:
    """Return True if one function can release them: arguments are held by the calling function as well.

    All functions of memlint count as the training loop that stands for the user's.
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
    """Find the sole holder of each of `buffer_ids` at `event` of a fresh `program`'s trace.

    Buffers that survive when the variables of one of the user's functions are released are missing.
    """
    search = _Search(event, buffer_ids)
    observers = state.current.observers
    observers.append(search)
    try:
        trace_program(program, device, allocator)
    except BaseException:  # the program's clean-up may fail over a variable that is None now
        if not search.is_over:
            raise
    finally:
        observers.remove(search)
    return search.holders

"""Who holds a Buffer: the step runs again until its peak, and there the variables of the program let go of it.

That a variable leads to a storage does not mean that the storage goes with it: autograd, a function further out or a
library may hold it too. So the variables found are bound to None, and what counts is which storages that ends.
"""

from __future__ import annotations

import ctypes
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

from memlint.accelerator import state
from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.sparse import parts_of
from memlint.base.ownership import is_memlint, is_users
from memlint.memory.retention import Holder
from memlint.tracing.recorder import Program, trace_program
from memlint.tracing.records import Frame

if TYPE_CHECKING:
    from memlint.accelerator.kernel import Kernel
    from memlint.cuda.allocator.settings import AllocatorSettings
    from memlint.cuda.devices import Device

_DEPTH = 3
"""How far into containers and objects a variable is searched."""
_ITEMS = 1000
"""Where the training loop is that stands for the user's."""


class _Reached(BaseException):
    """The peak is reached; nothing after it matters. No handler of user code catches it."""


_Key: TypeAlias = tuple[int, str]


class _Name(NamedTuple):
    """What a `del` takes: a local variable, or an attribute of the object that one is."""

    place: FrameType | dict[str, Any]
    """The function, or the attributes of the object."""
    name: str
    written: str

    @property
    def key(self) -> _Key:
        """The same however many variables lead to the object."""
        return id(self.place), self.name

    def unbind(self) -> None:
        """Let go of the value. The program cannot run on."""
        if isinstance(self.place, FrameType):
            self.place.f_locals[self.name] = None
            if sys.version_info < (3, 13):  # where f_locals is a copy
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(self.place), ctypes.c_int(0))
        else:
            self.place[self.name] = None


class _Way(NamedTuple):
    """How a function comes to a Buffer."""

    path: str
    """As it is written, `outputs.logits[0]`."""
    name: _Name
    frame: FrameType


class _Search:
    """An observer that looks around once the ledger has passed an event."""

    def __init__(self, event: int, wanted: Collection[int]) -> None:
        self.event = event
        self.wanted = frozenset(wanted)
        self.found: dict[int, Holder] = {}
        self.over = False

    def started(self, kernel: Kernel) -> None:
        """Nothing is decided before a kernel has run."""

    def failed(self) -> None:
        """A kernel that raises changes nothing."""

    def finished(self, _inputs: list[torch.Tensor], _outputs: list[torch.Tensor]) -> None:
        """Look around if the peak is behind."""
        if len(state.current.ledger.events) > self.event and not self.over:
            self.over = True
            self._look_around(sys._getframe(2))
            raise _Reached

    def _look_around(self, innermost: FrameType) -> None:
        ways: defaultdict[int, dict[_Key, _Way]] = defaultdict(dict)
        for frame in _editable(innermost):
            for number, way in _ways(frame, self.wanted):
                ways[number].setdefault(way.name.key, way)
        alone = {number: [*found.values()] for number, found in ways.items() if _are_of_one_function(found.values())}
        before = len(state.current.ledger.events)
        for found in alone.values():
            for way in found:
                way.name.unbind()
        for event in state.current.ledger.events[before:]:
            if ~event in alone:
                self.found[~event] = _holder(alone[~event])


def _editable(frame: FrameType | None) -> Iterator[FrameType]:
    """The running functions that the user wrote, and memlint's own, from this one outwards."""
    while frame is not None:
        if is_users(frame.f_code.co_filename) or _is_own(frame):
            yield frame
        frame = frame.f_back


def _is_own(frame: FrameType) -> bool:
    return is_memlint(frame.f_code.co_filename)


def _ways(frame: FrameType, wanted: Collection[int]) -> Iterator[tuple[int, _Way]]:
    """The Buffers among `wanted` that variables of the function lead to."""
    for variable, value in frame.f_locals.items():
        local = _Name(frame, variable, variable)
        if _has_attributes(value):
            for attribute, item in list(vars(value).items())[:_ITEMS]:
                name = _Name(vars(value), attribute, f"{variable}.{attribute}")
                for path, number in _numbers(item, name.written, _DEPTH - 1, {id(value)}):
                    if number in wanted:
                        yield number, _Way(path, name, frame)
        else:
            for path, number in _numbers(value, variable, _DEPTH, set()):
                if number in wanted:
                    yield number, _Way(path, local, frame)


def _are_of_one_function(ways: Iterable[_Way]) -> bool:
    """Whether one function can let go: what it was given, the function that called it holds as well."""
    return len({0 if _is_own(way.frame) else id(way.frame) for way in ways}) == 1


def _holder(ways: list[_Way]) -> Holder:
    first = ways[0]
    return Holder(first.path, _frame(first.frame), tuple(way.name.written for way in ways))


def _frame(frame: FrameType) -> Frame:
    return Frame(str(Path(frame.f_code.co_filename)), frame.f_lineno, frame.f_code.co_name)


def _numbers(  # noqa: C901  (one case for each kind of object)
    value: Any, path: str, depth: int, seen: set[int]
) -> Iterator[tuple[str, int]]:
    """The Buffers reachable from a variable, with how to write them."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if is_virtual(value):
            yield from ((path, entry_of(part).number) for part in parts_of(value))
    elif depth == 0:
        return
    elif isinstance(value, Mapping):
        for key, item in list(value.items())[:_ITEMS]:
            yield from _numbers(
                item, f"{path}.{key}" if hasattr(value, str(key)) else f"{path}[{key!r}]", depth - 1, seen
            )
    elif isinstance(value, (list, tuple, set)):
        for index, item in enumerate(list(value)[:_ITEMS]):
            yield from _numbers(item, f"{path}[{index}]", depth - 1, seen)
    elif _has_attributes(value):
        for name, item in list(vars(value).items())[:_ITEMS]:
            yield from _numbers(item, f"{path}.{name}", depth - 1, seen)


def _has_attributes(value: Any) -> bool:
    """Whether it is an object whose attributes are the program's. What a model keeps it keeps on purpose."""
    return (
        hasattr(value, "__dict__")
        and type(value).__module__ not in ("builtins", "types")
        and not isinstance(value, (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, type))
        and not isinstance(value, (Mapping, list, tuple, set, str, bytes, int))
    )


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
        if not search.over:
            raise
    finally:
        observers.remove(search)
    return search.found

"""Who holds a Buffer: the step runs again until its peak, and the variables of the running functions are searched."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from memlint.accelerator import kernels
from memlint.accelerator.device import State, entry_of, is_virtual
from memlint.accelerator.sparse import parts_of
from memlint.lint.rule import Holder
from memlint.trace.recorder import Program, trace_program
from memlint.trace.records import Frame

if TYPE_CHECKING:
    from types import FrameType

    from memlint.cuda.devices import Device

_DEPTH = 3
"""How far into containers and objects a variable is searched."""
_ITEMS = 1000


class _Reached(BaseException):
    """The peak is reached; nothing after it matters. No handler of user code catches it."""


class _Search:
    """An observer that looks around once the ledger has passed an event."""

    def __init__(self, event: int, wanted: Collection[int]) -> None:
        self.event = event
        self.wanted = frozenset(wanted)
        self.found: dict[int, Holder] = {}

    def started(self, kernel: kernels.Kernel) -> None:
        """Nothing is decided before a kernel has run."""

    def failed(self) -> None:
        """A kernel that raises changes nothing."""

    def finished(self, _inputs: list[torch.Tensor], _outputs: list[torch.Tensor]) -> None:
        """Look around if the peak is behind."""
        if len(State.ledger.events) > self.event:
            self._look_around()
            raise _Reached

    def _look_around(self) -> None:
        frame: FrameType | None = sys._getframe(3)
        while frame is not None:
            for variable, value in frame.f_locals.items():
                for path, number in _numbers(value, variable, _DEPTH, set()):
                    if number in self.wanted:
                        self.found.setdefault(number, Holder(path, _frame(frame)))
            frame = frame.f_back


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
    elif depth == 0 or isinstance(value, (torch.nn.Module, torch.optim.Optimizer, str, bytes, int, type)):
        return
    elif isinstance(value, Mapping):
        for key, item in list(value.items())[:_ITEMS]:
            yield from _numbers(
                item, f"{path}.{key}" if hasattr(value, str(key)) else f"{path}[{key!r}]", depth - 1, seen
            )
    elif isinstance(value, (list, tuple, set)):
        for index, item in enumerate(list(value)[:_ITEMS]):
            yield from _numbers(item, f"{path}[{index}]", depth - 1, seen)
    elif hasattr(value, "__dict__") and type(value).__module__ not in ("builtins", "types"):
        for name, item in list(vars(value).items())[:_ITEMS]:
            yield from _numbers(item, f"{path}.{name}", depth - 1, seen)


def find_holders(program: Program, device: Device, event: int, buffer_ids: Collection[int]) -> dict[int, Holder]:
    """Who holds which of `buffer_ids` at `event` of a fresh `program`'s trace, the innermost function first."""
    search = _Search(event, buffer_ids)
    kernels.observers.append(search)
    try:
        trace_program(program, device)
    except _Reached:
        pass
    finally:
        kernels.observers.remove(search)
    return search.found

"""Kernel calls of a trace as data, their arguments and the memory they took, so that any can be made again.

The memory of a call depends on the geometry of its tensors and on its other arguments. Split into a form, which is the
same for every batch size, and whole numbers, which may grow with it, a call can be made alone, for any numbers.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from memlint.accelerator import dispatch, state
from memlint.accelerator.kernel import Kernel
from memlint.accelerator.ledger import Ledger
from memlint.base.errors import WorkloadError
from memlint.cuda.simulated import Simulated, simulated
from memlint.cuda.workspaces import Workspaces
from memlint.scaling.forms import Form, Places, form_of, is_unknown, maker

Tensor = torch.Tensor


class Call(NamedTuple):
    """A kernel and its arguments."""

    kernel: Kernel
    form: Form
    numbers: tuple[int, ...]
    """Shapes, strides and whole numbers of all arguments, in order."""
    others: tuple[Any, ...]
    """Arguments that neither the form nor the numbers contain, in order: floats, tensors of one number, and None for
    each that the form does not know."""
    placement: bool | None
    """Value of `State.placement` at the call."""


class RecordedCall(NamedTuple):
    """A Call that was made at top level, not inside another."""

    call: Call
    """The Call; equal calls share one object, as far as that is easily seen."""
    first: int
    end: int
    """End of its events: they reach from `first` up to, not including, `end`."""
    stream: int
    """CUDA stream that was current."""


class Born(NamedTuple):
    """A storage that opens: bytes, and their bounds if they cannot be known exactly."""

    nbytes: int
    low: int
    high: int


class Pattern(NamedTuple):
    """Births of one call in order, and events as in `Trace.events`, where `b` and `~b` count these births."""

    births: tuple[Born, ...]
    events: tuple[int, ...]
    kept: tuple[int, ...]
    """Births that the call leaves open."""


class Calls(list[RecordedCall]):
    """Recorder of calls while it is `State.calls`, up to the number that the caller has time for."""

    workspaces: Workspaces
    """Those of the simulation in which the calls were made."""

    def __init__(self, most: int | None = None, *, is_needed: bool = True) -> None:
        super().__init__()
        self._most = most
        self._is_needed = is_needed
        self._inside = 0
        self._first = 0
        self._call: Call | None = None
        self._known: dict[Any, Call] = {}

    def began(self) -> None:
        """Note the start of a call, perhaps inside another."""
        if not self._inside:
            if self._most is not None and len(self) >= self._most:
                self._end()
            if not self:
                self.workspaces = simulated().workspaces
            self._first, self._call = len(state.current.ledger.events), None
        self._inside += 1

    def _end(self) -> None:
        if self._is_needed:
            raise TooLongError(
                f"two steps run more than {self._most} kernels, too many for a table of batch sizes",
                "See memlint sweep.",
            )
        state.current.calls = None
        self.clear()

    def with_arguments(
        self,
        kernel: Kernel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: list[Any] | None,
        tensors: list[Tensor],
    ) -> None:
        """Note the arguments of the call; `key`, if any, determines them all but for the places of `tensors`."""
        if self._inside > 1:
            return
        known: Any = None
        if key is not None:
            known = (*key, state.current.placement, *map(_location, tensors))
            try:
                self._call = self._known.get(known)
            except TypeError:  # an argument is not hashable
                known = None
        if self._call is None:
            self._call = _call(kernel, args, kwargs)
            if known is not None and not is_unknown(self._call.form):  # whose key would keep a storage alive
                self._known[known] = self._call

    def ended(self) -> None:
        """Note the end of the call."""
        self._inside -= 1
        if not self._inside and self._call is not None:
            ledger = state.current.ledger
            self.append(RecordedCall(self._call, self._first, len(ledger.events), ledger.stream))


def _location(tensor: Tensor) -> Any:
    if tensor.layout is not torch.strided:
        return tensor.layout
    storage: Any = tensor.untyped_storage()
    entry = getattr(storage, "entry", None)
    return None if entry is None else entry.host


def _call(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    numbers: list[int] = []
    others: list[Any] = []
    forms = (
        form_of(args, numbers, others),
        tuple([(name, form_of(value, numbers, others)) for name, value in kwargs.items()]),
    )
    return Call(kernel, forms, tuple(numbers), tuple(others), state.current.placement)


class TooLongError(WorkloadError):
    """A step runs more kernels than the caller has time for."""


@contextlib.contextmanager
def recorded(most: int | None = None, *, is_needed: bool = True) -> Iterator[Calls]:
    """Record the calls of kernels inside the block.

    One more than `most` raises TooLongError, or where the calls are not needed they are empty and none is recorded.
    """
    current = state.current
    calls = current.calls = Calls(most, is_needed=is_needed)
    try:
        yield calls
    finally:
        current.calls = None


def can_be_made_alone(call: Call) -> bool:
    """Return True if geometry and numbers determine the arguments of a call."""
    return not is_unknown(call.form)


def make_alone(call: Call, numbers: tuple[int, ...]) -> Pattern | None:
    """Make the call with other whole numbers on the simulated device; None if it would close other calls' storages.

    Libraries' workspaces are left out: they belong to the first call that needs them. Raises what the kernel raises.
    """
    scratch = Ledger()
    alone = _alone_in(simulated())
    alone.ledger, alone.unknown_sizes, alone.placement = scratch, {}, simulated().placement
    with state.installed(alone):
        args, kwargs = _arguments_of(call.form)(numbers, call.others)
        start = len(scratch.events)
        alone.placement = call.placement
        results = dispatch.run_alone(call.kernel, args, kwargs)  # its storages stay open as long as a reference exists
        events = scratch.events[start:]
        scratch.freeze()
        del results
    return pattern_of(events, scratch.size)


_copies: list[Simulated] = []
"""The running simulation, and its copy in which calls are made: copies take time, and calls are many."""


def _alone_in(running: Simulated) -> Simulated:
    """Return a simulation for one call: like the running one, without libraries' workspaces."""
    if not _copies or _copies[0] is not running:
        _copies[:] = [running, replace(running, workspaces=_OPEN)]
        running.exits.callback(_copies.clear)
    alone = _copies[1]
    alone.meets_unknown_sizes, alone.calls = running.meets_unknown_sizes, running.calls
    return alone


def pattern_of(events: Iterable[int], size: Callable[[int], tuple[int, int, int]]) -> Pattern | None:
    """Convert events to a Pattern, None if they close other storages; `size` gives the fields of Born for a storage."""
    order: dict[int, int] = {}
    numbered: list[int] = []
    for event in events:
        if event >= 0:
            order[event] = len(order)
            numbered.append(order[event])
        elif ~event in order:
            numbered.append(~order[~event])
        else:
            return None
    closed = {~event for event in numbered if event < 0}
    left_open = tuple(birth for birth in range(len(order)) if birth not in closed)
    return Pattern(tuple(map(Born._make, map(size, order))), tuple(numbered), left_open)


class _OpenWorkspaces(Workspaces):
    """Workspaces that are all allocated already."""

    def __init__(self) -> None:
        """Make them for no device."""

    def product(self) -> None:
        """Do nothing."""

    def product_with_bias(self) -> None:
        """Do nothing."""

    def is_first_search(self, _problem: object) -> bool:
        """Return False."""
        return False


_OPEN = _OpenWorkspaces()


@functools.cache
def _arguments_of(form: Form) -> Callable[[Sequence[int], Sequence[Any]], tuple[Any, dict[str, Any]]]:
    """Return a function that makes the arguments of a call of this form from its numbers and other values."""
    places = Places()
    positional = maker(form[0], places)
    named = [(name, maker(each, places)) for name, each in form[1]]
    return lambda numbers, others: (
        positional(numbers, others),
        {name: make(numbers, others) for name, make in named},
    )

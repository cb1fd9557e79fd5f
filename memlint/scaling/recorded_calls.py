"""The kernel calls of a trace as data: what they were called with, and what they took, so that any can be made again.

What a call takes depends on the geometry of its tensors and on its other arguments. Split into a form, which is the
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
    """A kernel, and all that is said to it."""

    kernel: Kernel
    form: Form
    numbers: tuple[int, ...]
    """Shapes, strides and whole numbers of all arguments, in order."""
    others: tuple[Any, ...]
    """What neither says, in order: floats, tensors of one number, and what cannot be hashed."""
    placement: bool | None
    """`State.placement` when it was called."""


class Made(NamedTuple):
    """A Call that was made by itself, not inside another."""

    call: Call
    """One object for calls that say the same, as far as that is easily seen."""
    first: int
    end: int
    """Its events among all: from `first` up to, not including, `end`."""
    stream: int
    """The CUDA stream that was current."""


class Born(NamedTuple):
    """A storage that opens: bytes, and bounds of them where nobody can know exactly."""

    nbytes: int
    low: int
    high: int


class Pattern(NamedTuple):
    """What one call does: births in order, and events as in `Trace.events`, where `b` and `~b` count these births."""

    births: tuple[Born, ...]
    events: tuple[int, ...]
    kept: tuple[int, ...]
    """The births that the call leaves open."""


class Calls(list[Made]):
    """Everything called while it is `State.calls`, up to as many as whoever asks has time for."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self._most = most
        self._inside = 0
        self._first = 0
        self._call: Call | None = None
        self._known: dict[Any, Call] = {}

    def began(self) -> None:
        """A kernel is called, perhaps inside of another."""
        if not self._inside:
            if self._most is not None and len(self) >= self._most:
                raise TooLongError(
                    f"two steps run more than {self._most} kernels, too many for a table beside", "See memlint sweep."
                )
            self._first, self._call = len(state.current.ledger.events), None
        self._inside += 1

    def with_arguments(
        self,
        kernel: Kernel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: list[Any] | None,
        tensors: list[Tensor],
    ) -> None:
        """What the kernel that began is called with; `key` tells all of it but where `tensors` are, if there is one."""
        if self._inside > 1:
            return
        known: Any = None
        if key is not None:
            known = (*key, state.current.placement, *map(_place, tensors))
            try:
                self._call = self._known.get(known)
            except TypeError:  # an argument that cannot be hashed
                known = None
        if self._call is None:
            self._call = _call(kernel, args, kwargs)
            if known is not None:
                self._known[known] = self._call

    def ended(self) -> None:
        """The call is over."""
        self._inside -= 1
        if not self._inside and self._call is not None:
            ledger = state.current.ledger
            self.append(Made(self._call, self._first, len(ledger.events), ledger.stream))


def _place(tensor: Tensor) -> Any:
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
    """A step runs more kernels than whoever asks has time for."""


@contextlib.contextmanager
def recorded(most: int | None = None) -> Iterator[Calls]:
    """Record the calls of kernels meanwhile. One more than `most` raises TooLongError."""
    current = state.current
    calls = current.calls = Calls(most)
    try:
        yield calls
    finally:
        current.calls = None


def can_be_made_alone(call: Call) -> bool:
    """Whether geometry and numbers say all about the arguments of a call."""
    return not is_unknown(call.form)


def make_alone(call: Call, numbers: tuple[int, ...]) -> Pattern | None:
    """What the call would do with other whole numbers, on the device simulated now; None if it would end others' lives.

    Libraries' workspaces are left out: they belong to the first call that needs them. Raises what the kernel raises.
    """
    scratch = Ledger()
    alone = _alone_in(simulated())
    alone.ledger, alone.unknown_sizes, alone.placement = scratch, {}, simulated().placement
    with state.installed(alone):
        args, kwargs = _arguments_of(call.form)(numbers, call.others)
        start = len(scratch.events)
        alone.placement = call.placement
        kept = dispatch.run_alone(call.kernel, args, kwargs)  # its storages are open as long as something holds it
        events = scratch.events[start:]
        scratch.freeze()
        del kept
    return pattern_of(events, scratch.size)


_copies: list[Simulated] = []
"""The simulation that runs, and the copy of it in which calls are made: many are, and a copy takes time."""


def _alone_in(running: Simulated) -> Simulated:
    """A simulation for one call: like that which runs, without libraries' workspaces."""
    if not _copies or _copies[0] is not running:
        _copies[:] = [running, replace(running, workspaces=_TAKEN)]
        running.exits.callback(_copies.clear)
    alone = _copies[1]
    alone.meets_unknown_sizes, alone.calls = running.meets_unknown_sizes, running.calls
    return alone


def pattern_of(events: Iterable[int], size: Callable[[int], tuple[int, int, int]]) -> Pattern | None:
    """Events as a Pattern, None if they close what they do not open; `size` gives the fields of Born for a storage."""
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
    kept = tuple(birth for birth in range(len(order)) if birth not in closed)
    return Pattern(tuple(map(Born._make, map(size, order))), tuple(numbered), kept)


class _Taken(Workspaces):
    """Workspaces that everybody has already."""

    def __init__(self) -> None:
        """Of no device."""

    def product(self) -> None:
        """Take nothing."""

    def product_with_bias(self) -> None:
        """Take nothing."""

    def is_first_search(self, _problem: object) -> bool:
        """Never."""
        return False


_TAKEN = _Taken()


@functools.cache
def _arguments_of(form: Form) -> Callable[[Sequence[int], Sequence[Any]], tuple[Any, dict[str, Any]]]:
    """What makes the arguments of a call of this form from its numbers and what else it has."""
    places = Places()
    positional = maker(form[0], places)
    named = [(name, maker(each, places)) for name, each in form[1]]
    return lambda numbers, others: (
        positional(numbers, others),
        {name: make(numbers, others) for name, make in named},
    )

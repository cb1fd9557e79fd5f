"""The kernel calls of a trace as data: what they were called with, and what they took, so that any can be made again.

What a call takes depends on the geometry of its tensors and on its other arguments. Split into a form, which is the
same for every batch size, and whole numbers, which may grow with it, a call can be made alone, for any numbers.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from memlint.accelerator import kernels
from memlint.accelerator.device import NAME, State, allocate, entry_of, real_device_of
from memlint.accelerator.ledger import Ledger
from memlint.errors import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from memlint.accelerator.kernels import Kernel

Tensor = torch.Tensor
Form = tuple[Any, ...]
"""Of an argument: what it is, without its whole numbers. Can be hashed."""


class Call(NamedTuple):
    """One kernel that ran by itself, not inside another."""

    kernel: Kernel
    form: Form
    numbers: tuple[int, ...]
    """Shapes, strides and whole numbers of all arguments, in order."""
    values: Any
    """The arguments without tensors of the device: the only place of floats and of what cannot be hashed."""
    placement: bool | None
    """`State.placement` when it was called."""
    node: int
    """Of the trace."""
    first: int
    end: int
    """Its events in the trace: from `first` up to, not including, `end`."""


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


class Calls(list[Call]):
    """Everything called while it is `State.calls`, up to as many as whoever asks has time for."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self._most = most
        self._inside = 0

    def began(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """A kernel is called; gives what `ended` wants to know, None inside of another call."""
        self._inside += 1
        if self._inside > 1:
            return None
        if self._most is not None and len(self) >= self._most:
            raise TooLongError(
                f"two steps run more than {self._most} kernels, too many for a table beside", "See memlint sweep."
            )
        numbers: list[int] = []
        form = (_form(args, numbers), tuple((name, _form(value, numbers)) for name, value in kwargs.items()))
        values = (_values(args), {name: _values(value) for name, value in kwargs.items()})
        ledger = State.ledger
        first = len(ledger.events)
        return Call(kernel, form, tuple(numbers), values, State.placement, ledger.node + 1, first, first)

    def ended(self, began: Call | None) -> None:
        """The call is over."""
        self._inside -= 1
        if began is not None:
            self.append(began._replace(end=len(State.ledger.events)))


class TooLongError(WorkloadError):
    """A step runs more kernels than whoever asks has time for."""


@contextlib.contextmanager
def recorded(most: int | None = None) -> Iterator[Calls]:
    """Record the calls of kernels meanwhile. One more than `most` raises TooLongError."""
    calls = State.calls = Calls(most)
    try:
        yield calls
    finally:
        State.calls = None


def can_be_made_alone(call: Call) -> bool:
    """Whether geometry and numbers say all about the arguments of a call."""
    return not _has(call.form, _UNKNOWN)


def make_alone(call: Call, numbers: tuple[int, ...]) -> Pattern | None:
    """What the call would do with other whole numbers, on the device simulated now; None if it would end others' lives.

    Libraries' workspaces are left out: they belong to the first call that needs them. Raises what the kernel raises.
    """
    ledger, workspaces, last_host = State.ledger, State.workspaces, State.last_host
    State.ledger = scratch = Ledger()
    State.workspaces = _Taken()
    try:
        left = iter(numbers)
        positional, named = call.values
        args = _made(call.form[0], left, positional)
        kwargs = {name: _made(form, left, named[name]) for name, form in call.form[1]}
        before, start = len(scratch.births), len(scratch.events)
        State.placement = call.placement
        kept = kernels.run(call.kernel, args, kwargs)  # its storages are open as long as something holds it
        events = scratch.events[start:]
        scratch.freeze()
        del kept
    finally:
        State.ledger, State.workspaces, State.placement, State.last_host = ledger, workspaces, None, last_host
    if any(~event < before for event in events if event < 0):
        return None
    sizes = {event: scratch.births[event].nbytes for event in events if event >= 0}
    return pattern_of(events, {each: Born(n, *scratch.doubts.get(each, (n, n))) for each, n in sizes.items()})


def pattern_of(events: Iterable[int], born: Mapping[int, Born]) -> Pattern | None:
    """Events that open the storages in `born` and nothing else, as a Pattern; None if they close something else."""
    order: dict[int, int] = {}
    told: list[int] = []
    for event in events:
        if event >= 0:
            order[event] = len(order)
            told.append(order[event])
        elif ~event in order:
            told.append(~order[~event])
        else:
            return None
    closed = {~event for event in told if event < 0}
    kept = tuple(birth for birth in range(len(order)) if birth not in closed)
    return Pattern(tuple(born[each] for each in order), tuple(told), kept)


class _Taken:
    """Workspaces that everybody has already."""

    def product(self) -> None:
        """Take nothing."""

    def product_with_bias(self) -> None:
        """Take nothing."""


_TENSOR, _SCALAR, _UNKNOWN, _LIST, _INT, _FLOAT = "tensor", "scalar", "unknown", "list", "int", "float"


def _form(value: Any, numbers: list[int]) -> Form:
    if isinstance(value, Tensor):
        return _form_of_tensor(value, numbers)
    if isinstance(value, (list, tuple)):
        return (_LIST, type(value), tuple(_form(each, numbers) for each in value))
    kind = value.__class__
    if kind is int:
        numbers.append(value)
        return (_INT,)
    if kind is float:
        return (_FLOAT,)
    try:
        hash(value)
    except TypeError:
        return (_UNKNOWN,)
    return ("value", kind, value)


def _form_of_tensor(tensor: Tensor, numbers: list[int]) -> Form:
    if real_device_of(tensor).type != NAME:
        return (_UNKNOWN,) if tensor.dim() else (_SCALAR, tensor.dtype)
    if tensor.layout is not torch.strided:
        return (_UNKNOWN,)
    numbers += tensor.shape
    numbers += tensor.stride()
    return (_TENSOR, tensor.dtype, tensor.dim(), entry_of(tensor).host)


def _values(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value if real_device_of(value).type != NAME and not value.dim() else None
    if isinstance(value, (list, tuple)):
        return [_values(each) for each in value]
    return value


def _made(form: Form, numbers: Iterator[int], value: Any) -> Any:
    what = form[0]
    if what == _TENSOR:
        _what, dtype, dim, host = form
        shape, stride = [next(numbers) for _ in range(dim)], [next(numbers) for _ in range(dim)]
        State.placement = host
        return allocate(shape, stride, dtype)
    if what == _LIST:
        return form[1]([_made(each, numbers, part) for each, part in zip(form[2], value, strict=True)])
    return next(numbers) if what == _INT else value


def _has(form: Any, mark: str) -> bool:
    return form == mark or (isinstance(form, tuple) and any(_has(part, mark) for part in form))

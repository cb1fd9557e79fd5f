"""Tensors that exist before a simulation begins, such as those that a file makes on the GPU when it is imported.

Every simulation begins with them in their original state: changes by one simulation are invisible to the others.
"""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.ledger import Entry

Tensor = torch.Tensor
_VALUES = ("uniform", "uniform_dtype", "nonzeros", "likely", "num_choices", "largest", "total", "sample", "num_true")


@dataclass(eq=False)
class _Preexisting:
    """A tensor, and what is known of its storage."""

    tensor: weakref.ref[Tensor]
    values: dict[str, Any]
    shadow: torch.UntypedStorage | None
    place: Any
    """Place in the program where it was made."""
    has_gradient: bool
    counts: bool = True
    """True if the running simulation has it; False if the simulation makes a replacement itself."""


_preexisting: list[_Preexisting] = []


@contextmanager
def recording(place: Callable[[], Any]) -> Iterator[None]:
    """Hold tensors that are made inside the block, in a simulation, and live at its end.

    `place` gives the program's place.
    """
    ledger = state.current.ledger
    is_first = not ledger.births and not _preexisting
    before = [] if is_first else list(_virtual())  # keeps their addresses from being reused
    known, observers, places = set(map(id, before)), state.current.observers, _Places(place)
    observers.append(places)
    try:
        yield
    finally:
        observers.remove(places)
    if is_first and not ledger.births:
        return
    made = (tensor for tensor in _virtual() if entry_of(tensor).ledger is ledger)
    tensors = [tensor for tensor in made if id(tensor) not in known]
    for tensor in sorted(tensors, key=lambda each: entry_of(each).number):
        entry = entry_of(tensor)
        values = {name: getattr(entry, name) for name in _VALUES}
        shadow = None if entry.shadow is None else entry.shadow.clone()
        has_gradient = tensor.is_leaf and tensor.grad is not None
        at = places.of_number.get(entry.number)
        _preexisting.append(_Preexisting(weakref.ref(tensor), values, shadow, at, has_gradient))


def begin() -> None:
    """Let the held tensors be born in the simulation that begins."""
    now = state.current
    for each, tensor in _alive():
        if tensor.is_leaf and not each.has_gradient and tensor.grad is not None:
            tensor.grad = None  # left by an earlier simulation
        storage: Any = tensor.untyped_storage()
        before: Entry = storage.entry
        each.counts = True
        if before.ledger is now.ledger:
            continue
        birth, host = before.ledger.births[before.number], now.cuda and before.host
        entry = now.ledger.open(before.nbytes, birth.shape, birth.dtype, host=host)
        entry.nbytes = before.nbytes
        for name, value in each.values.items():
            setattr(entry, name, value)
        entry.shadow = None if each.shadow is None else each.shadow.clone()
        storage.entry = entry


def leave_out(tensors: Iterable[Tensor]) -> None:
    """Stop counting these tensors in the running simulation, which makes replacements for them itself."""
    numbers = {id(tensor.untyped_storage()) for tensor in tensors if is_virtual(tensor)}
    for each, tensor in _alive():
        storage: Any = tensor.untyped_storage()
        if id(storage) in numbers and each.counts:
            each.counts = False
            before: Entry = storage.entry
            birth = before.ledger.births[before.number]
            entry = before.ledger.open(0, birth.shape, birth.dtype, host=before.host)
            for name in (*_VALUES, "nbytes", "shadow"):
                setattr(entry, name, getattr(before, name))
            storage.entry = entry


def includes(tensors: Iterable[Tensor]) -> bool:
    """Return True if any of these is a held tensor that counts."""
    wanted = {id(tensor) for tensor in tensors}
    return any(each.counts and id(tensor) in wanted for each, tensor in _alive())


def places() -> Mapping[int, Any]:
    """Places where held GPU tensors that count were made, by their number in the running simulation."""
    entries = [(entry_of(tensor), each.place) for each, tensor in _alive() if each.counts]
    now = state.current.ledger
    return {entry.number: place for entry, place in entries if entry.ledger is now and not entry.host}


def forget() -> None:
    """Hold nothing any more."""
    _preexisting.clear()


def _alive() -> Iterator[tuple[_Preexisting, Tensor]]:
    for each in list(_preexisting):
        tensor = each.tensor()
        if tensor is None:
            _preexisting.remove(each)
        else:
            yield each, tensor


def _virtual() -> Iterator[Tensor]:
    """Yield every tensor on the virtual device that has a Python object."""
    for value in gc.get_objects():
        if issubclass(type(value), Tensor) and is_virtual(value) and value.layout is torch.strided:
            yield value


class _Places(state.Observer):
    """Observer that notes where storages are made."""

    def __init__(self, place: Callable[[], Any]) -> None:
        self.place = place
        self.of_number: dict[int, Any] = {}

    def finished(self, inputs: list[Tensor], outputs: list[Tensor]) -> None:  # noqa: ARG002 -- of observers
        """Note the place of the outputs."""
        for output in outputs:
            if is_virtual(output) and output.layout is torch.strided:
                self.of_number.setdefault(entry_of(output).number, self.place())

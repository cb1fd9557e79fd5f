"""Values split into a form, which is the same at every size, and whole numbers, which may grow with it."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from memlint.accelerator import state
from memlint.accelerator.device import NAME, allocate, entry_of, real_device_of
from memlint.accelerator.inference import Shape

Form: TypeAlias = "tuple[Any, ...]"
"""Form of a value: the value without its whole numbers. Hashable."""
Make: TypeAlias = "Callable[[Sequence[int], Sequence[Any]], Any]"
"""Makes a value from whole numbers and from the other values that its form does not contain."""

UNKNOWN: Form = ("unknown",)
"""Form of a value that geometry and numbers do not determine."""
_INT: Form = ("int",)
_OTHER = "other"
_VALUE, _SEQUENCE, _TENSOR, _SHAPE = "value", "sequence", "tensor", "shape"
_STORAGES = (torch.UntypedStorage, torch.TypedStorage)


def form_of(value: Any, numbers: list[int], others: list[Any] | None = None) -> Form:
    """Return the form of a value; its whole numbers are appended to `numbers`.

    Values that the form does not contain are appended to `others`: floats, tensors of one number, and None for objects
    that cannot be compared or hold memory. Without `others` the form contains them too.
    """
    kind = value.__class__
    if kind is int:
        numbers.append(value)
        return _INT
    if isinstance(value, (list, tuple)):
        sequence_type = kind if kind in (list, torch.Size) else tuple
        if all(part.__class__ is int for part in value):
            numbers += value
            return (_SEQUENCE, sequence_type, (_INT,) * len(value))
        return (_SEQUENCE, sequence_type, tuple([form_of(part, numbers, others) for part in value]))
    if kind is Shape:
        numbers += value.shape
        numbers += value.stride
        return (_SHAPE, value.dtype, len(value.shape))
    if others is None:
        return (_VALUE, kind, value)
    if isinstance(value, torch.Tensor):
        return _form_of_tensor(value, numbers, others)
    if kind is float:
        others.append(value)
        return (_OTHER, float)
    try:
        hash(value)
    except TypeError:
        others.append(None)
        return UNKNOWN
    if isinstance(value, _STORAGES):
        others.append(None)  # which would live as long as the recorded call
        return UNKNOWN
    return (_VALUE, kind, value)


def _form_of_tensor(tensor: torch.Tensor, numbers: list[int], others: list[Any]) -> Form:
    dim = tensor.dim()
    if real_device_of(tensor).type != NAME:
        others.append(None if dim else tensor)
        return UNKNOWN if dim else (_OTHER, tensor.dtype)
    if tensor.layout is not torch.strided:
        others.append(None)
        return UNKNOWN
    numbers += tensor.shape
    numbers += tensor.stride()
    return (_TENSOR, tensor.dtype, dim, entry_of(tensor).host)


class Places:
    """Positions of the next number and of the next other value."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.other = 0


def maker(form: Form, places: Places) -> Make:
    """Return a maker of values of this form from numbers and others, which are read in order from `places` on."""
    what, place, other = form[0], places.number, places.other
    if what == _VALUE:
        return lambda _numbers, _others: form[2]
    if form == _INT:
        places.number += 1
        return lambda numbers, _others: numbers[place]
    if what == _SEQUENCE:
        return _sequence_maker(form[1], form[2], places)
    if what in (_SHAPE, _TENSOR):
        dtype, dim = form[1:3]
        middle, end = place + dim, place + 2 * dim
        places.number = end
        if what == _SHAPE:
            return lambda numbers, _others: Shape(numbers[place:middle], numbers[middle:end], dtype)

        def make(numbers: Sequence[int], _others: Sequence[Any]) -> torch.Tensor:
            state.current.placement = form[3]
            return allocate(numbers[place:middle], numbers[middle:end], dtype)

        return make
    places.other += 1
    return lambda _numbers, others: others[other]


def _sequence_maker(kind: Callable[[Sequence[Any]], Any], forms: Sequence[Form], places: Places) -> Make:
    if all(form == _INT for form in forms):
        place = places.number
        end = places.number = place + len(forms)
        return lambda numbers, _others: kind(numbers[place:end])
    same = [form[2] if form[0] == _VALUE else None for form in forms]
    makers = [(index, maker(form, places)) for index, form in enumerate(forms) if form[0] != _VALUE]

    def make(numbers: Sequence[int], others: Sequence[Any]) -> Any:
        values = same.copy()
        for index, part in makers:
            values[index] = part(numbers, others)
        return kind(values)

    return make


def is_unknown(form: Any) -> bool:
    """Return True if a part of it is UNKNOWN."""
    return form == UNKNOWN or (isinstance(form, tuple) and any(map(is_unknown, form)))

"""Kernels over lists of tensors: what happens at one position of the lists does not depend on the others.

A model has thousands of parameters of a dozen shapes, so shapes are inferred for one position of each kind.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from memlint.accelerator.device import real

Tensor = torch.Tensor


class Distinct(NamedTuple):
    """The arguments of a `_foreach_` kernel, with lists that have one position of each kind."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    kinds: list[int]
    """For each position of the lists as they were, the position of the shortened ones that is like it."""

    def spread(self, results: list[Any]) -> list[Any]:
        """A list over the shortened lists' positions as one over all."""
        return [results[kind] for kind in self.kinds]


def distinct_positions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Distinct | None:
    """The positions that differ in geometry or numbers; None where all do, or they depend on each other."""
    values = (*args, *kwargs.values())
    lists = [value for value in values if isinstance(value, (list, tuple))]
    if len({len(each) for each in lists}) != 1 or any(isinstance(value, Tensor) for value in values):
        return None
    first: dict[Any, int] = {}
    kinds: list[int] = []
    chosen: list[int] = []
    for index, position in enumerate(zip(*lists, strict=True)):
        properties = tuple(map(_properties, position))
        if None in properties:
            return None
        kind = first.setdefault(properties, len(chosen))
        if kind == len(chosen):
            chosen.append(index)
        kinds.append(kind)
    if len(chosen) == len(kinds):
        return None

    def shortened(value: Any) -> Any:
        return [value[index] for index in chosen] if isinstance(value, (list, tuple)) else value

    return Distinct(tuple(map(shortened, args)), {name: shortened(value) for name, value in kwargs.items()}, kinds)


def _properties(value: Any) -> Any:
    """What a result can depend on; None if that does not show."""
    if isinstance(value, Tensor):
        if not value.dim() and real.is_cpu(value):
            return None  # it may be a Python number, which promotes differently
        return value.shape, value.stride(), value.dtype
    return (value.__class__, value) if isinstance(value, (bool, int, float, complex)) else None

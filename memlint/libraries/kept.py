"""Tensors that a library makes once and keeps while the program runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from memlint.cuda.simulated import simulated

_kept: dict[tuple[int, Hashable], tuple[int, tuple[torch.Tensor, ...]]] = {}


def kept(name: Hashable, make: Callable[[], tuple[torch.Tensor, ...]], size: int = 0) -> tuple[torch.Tensor, ...]:
    """The tensors of this name, made where they are first asked for, or asked for in a greater size than before.

    They end with the simulation.
    """
    now = simulated()
    key = id(now), name
    if key not in _kept:
        now.exits.callback(_kept.pop, key, None)
    if key not in _kept or _kept[key][0] < size:
        _kept.pop(key, None)
        _kept[key] = size, make()
    return _kept[key][1]

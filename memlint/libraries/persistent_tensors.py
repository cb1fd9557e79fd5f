"""Tensors that a package allocates once and keeps until the program ends, such as a workspace that all layers share."""

from collections.abc import Callable, Hashable

import torch

from memlint.cuda.simulated import simulated

_allocated: dict[tuple[int, Hashable], tuple[int, tuple[torch.Tensor, ...]]] = {}


def persistent_tensors(
    name: Hashable, allocate: Callable[[], tuple[torch.Tensor, ...]], size: int = 0
) -> tuple[torch.Tensor, ...]:
    """Give the tensors of this name, which `allocate` returns at the first call and where `size` exceeds all before.

    They are freed at the end of the simulation. `size` is in any unit that the callers of one name share.
    """
    now = simulated()
    key = id(now), name
    if key not in _allocated:
        now.exits.callback(_allocated.pop, key, None)
    if key not in _allocated or _allocated[key][0] < size:
        _allocated.pop(key, None)
        _allocated[key] = size, allocate()
    return _allocated[key][1]

"""The random state of the host, which `--gpu cpu` counts: every checkpoint keeps one of 5,056 bytes for its backward.

The state of a GPU is 16 bytes, and is kept on the host too (`CUDAGeneratorImpl::get_state` of
aten/src/ATen/cuda/CUDAGeneratorImpl.cpp): a checkpoint keeps nothing of it on the GPU.
"""

from typing import Any

import torch

from memlint.accelerator import values
from memlint.accelerator.device import is_virtual

Tensor = torch.Tensor
_get = torch.get_rng_state
_set = torch.set_rng_state


def _get_rng_state() -> Tensor:
    return values.to_host(_get())


def known_state(state: Tensor) -> Tensor | None:
    """Return the content of a random state, which may have been on the GPU; None if it came from another rank."""
    return values.content(state) if is_virtual(state) else state


def _set_rng_state(new_state: Tensor) -> None:
    known = known_state(new_state)
    if known is not None:
        _set(known)


def patches(*, on_host: bool) -> list[tuple[Any, str, Any]]:
    """Return the patches, with `on_host` for a simulated host: owner, name, replacement."""
    functions = {"set_rng_state": _set_rng_state, **({"get_rng_state": _get_rng_state} if on_host else {})}
    return [(owner, name, each) for owner in (torch, torch.random) for name, each in functions.items()]

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


def _set_rng_state(new_state: Tensor) -> None:
    known = values.content(new_state) if is_virtual(new_state) else new_state
    if known is not None:
        _set(known)


def patches() -> list[tuple[Any, str, Any]]:
    """Return the patches while the host is simulated: owner, name, replacement."""
    return [
        (owner, name, function)
        for owner in (torch, torch.random)
        for name, function in (("get_rng_state", _get_rng_state), ("set_rng_state", _set_rng_state))
    ]

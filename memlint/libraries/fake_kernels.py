"""Kernels of libraries as TorchDynamo follows them: on tensors without memory, of which it asks the geometry alone."""

from collections.abc import Callable
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import allocate
from memlint.accelerator.private import disable_dispatch_modes, tree_leaves, tree_map, tree_map_only
from memlint.accelerator.unseen import unseen


def fake_of(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return the fake implementation of a `kernel` that allocates what it returns: it runs where nobody sees it."""

    def run(*args: Any, **kwargs: Any) -> Any:
        fakes = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        with disable_dispatch_modes(), unseen(), state.current.placed(on_host=False):
            args, kwargs = tree_map(_stored, (args, kwargs))
            results = kernel(*args, **kwargs)
        return tree_map_only(torch.Tensor, lambda result: _fake(result, fakes[0].device), results)

    return run


def _stored(value: Any) -> Any:
    """Return a virtual tensor for a fake, and a number for one that may be another in the next call."""
    if isinstance(value, torch.Tensor):
        return allocate([int(n) for n in value.shape], [int(n) for n in value.stride()], value.dtype)
    return int(value) if isinstance(value, torch.SymInt) else value


def _fake(result: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device=device)

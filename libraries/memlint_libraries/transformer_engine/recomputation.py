"""Transformer Engine 2.9: activations that are computed again: pytorch/distributed.py:693."""

from collections.abc import Callable
from typing import Any

from torch.utils import checkpoint as of_pytorch

from memlint_libraries.transformer_engine.recipes import in_use, library, using


@library.provides("transformer_engine.pytorch", "transformer_engine.pytorch.distributed")
def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Keep the arguments, and compute the function again in backward, by the recipe that it was computed by.

    As PyTorch's own, but that all of the function is computed again (distributed.py:739).
    """
    is_reentrant = kwargs.pop("use_reentrant", True)
    if kwargs.pop("distribute_saved_activations", False):
        library.unknown("transformer_engine.pytorch.checkpoint(distribute_saved_activations=True)")()
    for name in ("tp_group", "get_rng_state_tracker", "determinism_check", "debug"):
        kwargs.pop(name, None)
    context_fn = kwargs.pop("context_fn", of_pytorch.noop_context_fn)
    recipe = in_use[-1]

    def computed(*inputs: Any) -> Any:
        with using(recipe):
            return function(*inputs, **kwargs)

    with of_pytorch.set_checkpoint_early_stop(False):
        if is_reentrant:
            return of_pytorch.checkpoint(computed, *args, use_reentrant=True)
        return of_pytorch.checkpoint(computed, *args, use_reentrant=False, context_fn=context_fn)

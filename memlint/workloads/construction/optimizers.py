"""Optimizers by name."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial

import torch
from torch import optim

from memlint.base.errors import UsageError

OptimizerFactory = Callable[[Iterable[torch.nn.Parameter]], optim.Optimizer]


class LBFGS(optim.LBFGS):
    """PyTorch's L-BFGS, with a full history from the first step on, as after `history_size` iterations.

    State: `history_size` differences of gradients and of parameters, each as large as all parameters, and their
    products.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        """Take one step; `closure` computes the gradients anew at every call, and returns the loss."""
        first, group = self._params[0], self.param_groups[0]
        if not self.state[first]:
            size = group["history_size"]
            num_values: int = self._numel()  # type: ignore[no-untyped-call]

            def flat() -> torch.Tensor:
                return torch.zeros(num_values, dtype=first.dtype, device=first.device)

            self.state[first].update(
                func_evals=size,
                n_iter=size,
                d=flat(),
                t=group["lr"],
                old_dirs=[flat() for _ in range(size)],
                old_stps=[flat() for _ in range(size)],
                ro=[first.new_ones(()) for _ in range(size)],
                H_diag=first.new_ones(()),
                prev_flat_grad=flat(),
                prev_loss=0.0,
                al=[first.new_ones(()) for _ in range(size)],
            )
        loss: torch.Tensor = super().step(closure)  # type: ignore[no-untyped-call]
        return loss


NONE = "none"
"""The name for no optimizer step: forward and backward only."""

OPTIMIZERS: Mapping[str, OptimizerFactory] = {
    "sgd": partial(optim.SGD, lr=1e-3),
    "sgd-momentum": partial(optim.SGD, lr=1e-3, momentum=0.9),
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "adamax": optim.Adamax,
    "nadam": optim.NAdam,
    "radam": optim.RAdam,
    "adagrad": optim.Adagrad,
    "adadelta": optim.Adadelta,
    "adafactor": optim.Adafactor,
    "rmsprop": optim.RMSprop,
    "rprop": optim.Rprop,
    "asgd": optim.ASGD,
    "sparse-adam": optim.SparseAdam,
    "muon": optim.Muon,
    "lbfgs": LBFGS,
}
"""PyTorch's optimizers with their default arguments; the learning rate costs no bytes."""


def optimizer_named(name: str) -> OptimizerFactory:
    """Get the factory of that name, in any case. Raises UsageError for an unknown one."""
    factory = OPTIMIZERS.get(name.lower())
    if factory is None:
        close = get_close_matches(name.lower(), OPTIMIZERS, 1)
        hint = f"Did you mean {close[0]}? " if close else f"Known are {', '.join(OPTIMIZERS)} and {NONE}. "
        raise UsageError(f"{name!r} is not an optimizer", f"{hint}For one of your own write file.py::function.")
    return factory

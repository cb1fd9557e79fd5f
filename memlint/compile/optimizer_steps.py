"""Hooks around the steps of optimizers, also of those that compiled code takes, in which TorchDynamo follows them.

There they only leave a note, so that the graph is whole as it is without them; who listens is told after the call.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Before = Callable[[torch.optim.Optimizer, tuple[Any, ...], dict[str, Any]], Arguments | None]
After = Callable[[torch.optim.Optimizer, tuple[Any, ...], dict[str, Any]], None]

_stepped: list[torch.optim.Optimizer] = []
"""Optimizers that the compiled code which runs has stepped."""
_told: list[tuple[Before, After]] = []


@contextmanager
def observed(before: Before, after: After) -> Iterator[None]:
    """Call `before` and `after` around each step; of a step in compiled code, one after the other behind the code.

    `before` returns replacements for the arguments of the step, if any.
    """

    def begin(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        return None if torch.compiler.is_dynamo_compiling() else before(optimizer, args, kwargs)

    def end(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_dynamo_compiling():
            _stepped.append(optimizer)
        else:
            after(optimizer, args, kwargs)

    hooks = register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)
    _told.append((before, after))
    try:
        yield
    finally:
        _told.remove((before, after))
        _stepped.clear()  # of code that ended by an exception
        for hook in hooks:
            hook.remove()


def tell() -> None:
    """Tell of the steps that compiled code has taken since the last time."""
    taken = list(_stepped)
    _stepped.clear()
    for optimizer in taken:
        for before, after in _told:
            before(optimizer, (optimizer,), {})
            after(optimizer, (optimizer,), {})

"""torchao runs its own Python: tensors that wrap others, whose parts are on the simulated GPU. Held against 0.18.0."""

import functools
from typing import Any

from memlint.base.after_import import after_import
from memlint.libraries.library import assume_once


def install() -> None:
    """Say of torchao's optimizers, where they are used, that a GPU would run them compiled."""
    after_import("torchao.optim.adam", _say_it_is_eager)


def _say_it_is_eager(module: Any) -> None:
    step = module.single_param_adam

    @functools.wraps(step)
    def eager(*args: Any, **kwargs: Any) -> Any:
        assume_once("optimizer steps of torchao run eagerly: compiled ones take less beside their states")
        return step(*args, **kwargs)

    module.single_param_adam = eager

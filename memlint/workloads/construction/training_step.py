"""Modules of which a step calls something else than `forward`.

A LightningModule may have only a `training_step`. Of others a training loop calls several methods, such as `encode` and
`decode`, or one that gives the loss.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

import torch
from torch import nn

from memlint.base.ownership import is_installed
from memlint.base.signatures import signature_of
from memlint.memory.records import Assumption, Frame
from memlint.source.fed_calls import FedCall

_STEP, _OPTIMIZERS = "training_step", "configure_optimizers"


def calls_training_step(model: nn.Module) -> bool:
    """Make `model(...)` call its training step if its class has one and no `forward`; return True if so."""
    kind = type(model)
    if hasattr(kind.forward, _STEP):
        return True
    step, forward = _definer(kind, _STEP), _definer(kind, "forward")
    is_stub = forward is nn.Module or (forward is not None and _STEP in vars(forward) and _is_of_package(forward))
    if step is None or step is forward or not is_stub:
        return False
    kind.forward = _through(getattr(kind, _STEP))
    return True


def calls_methods(model: nn.Module, fed: FedCall) -> bool:
    """Make `model(...)` call the methods that its training loop calls, if it has all of them; return True if so."""
    kind = type(model)
    if not fed.code or not has_methods(kind, fed):
        return False
    namespace: dict[str, Any] = {}
    exec(compile(fed.code, f"<the loop at {fed.path}:{fed.line}>", "exec"), namespace)
    kind.forward = namespace["forward"]
    return True


def has_methods(kind: type, fed: FedCall) -> bool:
    """Return True if the class has all methods that a loop calls."""
    return all(callable(getattr(kind, name, None)) for name in fed.methods)


def own_optimizer(model: nn.Module) -> Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None:
    """Return a factory of the one optimizer that `model` configures; None if it configures none, or several."""
    configure = getattr(model, _OPTIMIZERS, None)
    owner = _definer(type(model), _OPTIMIZERS)
    if configure is None or owner is None or _is_of_package(owner) or len(_optimizers(configure())) != 1:
        return None
    return lambda _parameters: _optimizers(configure())[0]


def assumption(model: nn.Module) -> Assumption:
    """Return the assumption that names the method called in place of `forward`."""
    return Assumption(f"{type(model).__name__} has no forward: a step is its {_STEP}", None)


def of_methods(fed: FedCall) -> Assumption:
    """Return the assumption that names the methods called in place of `forward`."""
    return Assumption(f"a step calls {', '.join(fed.methods)}", Frame(fed.path, fed.line, ""), found=True)


def _through(step: Callable[..., Any]) -> Callable[..., Any]:
    """Make a `forward` that receives the batch and calls the training step, with source and parameters of `step`."""
    signature = signature_of(step)
    taken = list(signature.parameters.values())

    @wraps(step)
    def forward(self: Any, batch: object) -> object:
        return self.training_step(batch, *[0] * (min(len(taken), 3) - 2))  # the index of the batch is 0

    forward.__signature__ = signature.replace(parameters=taken[:2])  # type: ignore[attr-defined]
    setattr(forward, _STEP, step)
    return forward


def _optimizers(configured: object) -> list[torch.optim.Optimizer]:
    """Return the optimizers in the result of `configure_optimizers`: one, several, with schedulers, in dictionaries."""
    if isinstance(configured, torch.optim.Optimizer):
        return [configured]
    if isinstance(configured, Mapping):
        return _optimizers(configured.get("optimizer"))
    entries = configured if isinstance(configured, list | tuple) else ()
    return [each for entry in entries for each in _optimizers(entry)]


def _definer(kind: type, name: str) -> type | None:
    """Return the class that defines that attribute of `kind`."""
    return next((base for base in kind.__mro__ if name in vars(base)), None)


def _is_of_package(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and is_installed(file)

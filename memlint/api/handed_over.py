"""A model, its inputs and its optimizer as they are handed over, as what builds a Workload at any batch."""

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from memlint.base.errors import UsageError
from memlint.targets.declare import Declaration

_LARGE = 2**20
"""Bytes from which on a tensor that is made on the host has no memory there while a step is simulated."""


def batch_of(inputs: Any) -> int | None:
    """Give the first size of the first tensor in the inputs; None without one."""
    return next((int(tensor.shape[0]) for tensor in _tensors(inputs) if tensor.ndim), None)


def builder(model: Any, inputs: Any, optimizer: Any, loss: Any) -> Callable[..., Declaration]:
    """Make the function that builds model, inputs and optimizer at a batch; each time it has a model of its own.

    `model` is a module, or a function or class that makes one. Of the inputs, tensors whose first size is that of the
    first tensor are made as long as the batch, small ones by repeating what is in them. Raises UsageError for an
    optimizer that is none.
    """
    make = _factory(optimizer, model)
    own = batch_of(inputs)

    def build(batch: int) -> Declaration:
        made = copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model()
        resized = inputs if own in (None, batch) else _resized(inputs, own or 1, batch)
        return Declaration(made, resized, loss=loss, optimizer=make)

    name = type(model).__name__ if isinstance(model, torch.nn.Module) else getattr(model, "__name__", "model")
    build.__name__ = "model" if name == "<lambda>" else name
    return build


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _resized(value: Any, own: int, batch: int) -> Any:
    if isinstance(value, torch.Tensor):
        if not value.ndim or value.shape[0] != own:
            return value
        if value.element_size() * value.numel() * batch > own * _LARGE:
            return torch.zeros((batch, *value.shape[1:]), dtype=value.dtype)
        return value.repeat(-(-batch // own), *(1,) * (value.ndim - 1))[:batch]
    if isinstance(value, Mapping):
        return {name: _resized(each, own, batch) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_resized(each, own, batch) for each in value])
    return value


def _factory(optimizer: Any, model: Any) -> Callable[[Any], Any] | None:
    """Make the function that takes parameters and gives the optimizer; None where the name of one is a setting."""
    if optimizer is None or isinstance(optimizer, str):
        return None
    if isinstance(optimizer, torch.optim.Optimizer):
        return _like(optimizer, model)
    if callable(optimizer):
        return optimizer  # type: ignore[no-any-return]
    raise UsageError(
        f"{optimizer!r} is no optimizer",
        'Give its name, as in "adamw", its class, a function of parameters, or itself.',
    )


def _like(optimizer: torch.optim.Optimizer, model: Any) -> Callable[[Any], torch.optim.Optimizer]:
    """Make an optimizer like the given one, with its groups and settings, of the parameters of another model."""
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            "the optimizer belongs to a model that was not handed over",
            "Give that model, or the class of the optimizer.",
        )
    position = {id(parameter): number for number, parameter in enumerate(model.parameters())}
    groups = []
    for group in optimizer.param_groups:
        numbers = [position[id(parameter)] for parameter in group["params"] if id(parameter) in position]
        if len(numbers) < len(group["params"]):
            raise UsageError(
                "the optimizer has parameters that the model does not have", "Give the optimizer's own model."
            )
        groups.append((numbers, {name: value for name, value in group.items() if name != "params"}))
    kind: Any = type(optimizer)
    taken = inspect.signature(kind).parameters
    defaults = {name: value for name, value in optimizer.defaults.items() if name in taken}

    def make(parameters: Any) -> torch.optim.Optimizer:
        own = list(parameters)
        made = [{**settings, "params": [own[number] for number in numbers]} for numbers, settings in groups]
        return kind(made, **defaults)  # type: ignore[no-any-return]

    return make

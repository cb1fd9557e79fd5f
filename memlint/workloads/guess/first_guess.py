"""The first guess of a model's inputs: from the names of `forward`'s parameters and the first layers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch import nn

from memlint.source.fed_calls import FedInput
from memlint.targets.workload import BATCH, InputSpec
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.containers import entries, fields, of_batch_items, unpacked
from memlint.workloads.guess.dimension_names import of_one_size
from memlint.workloads.guess.forward_names import first_entry, guess_input
from memlint.workloads.guess.repair import Specs
from memlint.workloads.model_sizes import ModelSizes

_SIDES = 2
"""Sizes of an image without its colours."""


def first_guess(model: nn.Module, sizes: ModelSizes, feeding: Mapping[str, FedInput]) -> Specs:
    """Return a guess for each required input, as the call in the training loop, `feeding`, restricts it."""
    required = [each for each in parameters(model.forward).values() if each.default is each.empty]
    size = size_of_its_own(model)
    if size is not None and len(required) == 1:
        return (InputSpec(required[0].name, (BATCH, *size)),)
    if len(required) == 1 and len(parts := unpacked(model, required[0].name)) > 1:
        each = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in parts]
        guesses = [guess_input(part, model, frozenset(parts), sizes) for part in each]
        return tuple(replace(spec, name=f"{required[0].name}.{n}") for n, spec in enumerate(guesses))
    names = frozenset(parameter.name for parameter in required)
    guesses = [
        as_fed(spec, feeding[parameter.name]) if parameter.name in feeding else spec
        for parameter in required
        for spec in guessed(parameter, model, names, sizes)
    ]
    guesses = of_one_size(model, guesses)
    if not guesses:
        # forward(*inputs) or forward(**batch): only the first layer tells anything.
        entry = first_entry(model, sizes)
        guesses = [] if entry is None else [replace(entry, name="0")]
    return tuple(each for spec in guesses for each in entries(model, spec, sizes))


def as_fed(spec: InputSpec, fed: FedInput) -> InputSpec:
    """Return an input with the dtype and the number of dimensions that the training loop gives it."""
    shape = (BATCH,) if fed.is_flat and spec.shape[:1] == (BATCH,) else (BATCH, 1) if fed.is_column else spec.shape
    if not fed.dtype or (fed.dtype == "float32" and spec.dtype == "float32"):
        return replace(spec, shape=shape)
    is_cast = fed.dtype != spec.dtype
    return replace(spec, shape=shape, dtype=fed.dtype, high=None if is_cast and fed.dtype == "float32" else spec.high)


def guessed(
    parameter: inspect.Parameter, model: nn.Module, names: frozenset[str], sizes: ModelSizes
) -> Iterator[InputSpec]:
    """Yield a guess for a parameter of `forward`, or one for each of its fields that the code reads."""
    items = of_batch_items(model, parameter, guess_input(parameter, model, names, sizes))
    if any("[]" in each.name for each in items):
        yield from items
        return
    own = fields(model, parameter.name)
    for name in own:
        field = inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        yield replace(guess_input(field, model, frozenset(own), sizes), name=f"{parameter.name}.{name}")
    if not own:
        yield guess_input(parameter, model, names, sizes)


def size_of_its_own(model: nn.Module) -> tuple[int, ...] | None:
    """Return the sizes of an input behind the batch that a model states, as timm's do: of images or videos."""
    configs = (getattr(model, name, None) for name in ("pretrained_cfg", "default_cfg"))
    stated = [each.get("input_size") for each in configs if isinstance(each, dict)]
    for size in (*stated, *(getattr(model, name, None) for name in ("input_shape", "in_shape"))):
        if isinstance(size, tuple | list) and len(size) > _SIDES and all(type(n) is int for n in size):
            return tuple(size)
    return None

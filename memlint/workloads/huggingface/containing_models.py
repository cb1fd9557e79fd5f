"""Inputs of a part of a Hugging Face model, recorded while a whole model with such a part runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from memlint.base.signatures import signature_of
from memlint.targets.workload import BATCH, DTYPES, InputSpec
from memlint.workloads.huggingface.models import classes_of, configs_with

BATCHES = 2, 4
"""Two batch sizes: a size that is twice as large for the second follows the batch."""
_MOST_VALUES = 64
"""Maximum number of values of a table, such as the sizes of an image's levels, that is passed with its values."""


def containing_models(part: Any) -> Iterator[nn.Module]:
    """Yield models with a part of this class: with the config of `part`, then with their own defaults."""
    for name, config_class in configs_with(type(part.config)):
        for changed in ({name: part.config}, {}):
            with suppress(Exception):  # its defaults, or the part's sizes among them, make no model
                config = config_class()
                vars(config).update(changed, use_cache=False)
                for kind in classes_of(config):
                    with suppress(Exception):
                        whole: nn.Module = kind(config)
                        if any(type(module) is type(part) for module in whole.modules()):
                            yield whole


def inputs_of_part(whole: nn.Module, part: nn.Module, run: Callable[..., object]) -> tuple[InputSpec, ...]:
    """Return the inputs that `whole` gives a part of the class of `part`; `run` calls it with a batch. May be empty."""
    calls: list[Mapping[str, Any]] = []
    signature = signature_of(part.forward)

    def record(_: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls.append(signature.bind(*positional, **named).arguments)

    own = next(module for module in whole.modules() if type(module) is type(part))
    hook = own.register_forward_pre_hook(record, with_kwargs=True)
    firsts = []
    for batch in BATCHES:
        calls.clear()
        run(batch=batch)
        firsts += calls[:1]
    hook.remove()
    if len(firsts) < len(BATCHES):
        return ()
    one, two = firsts
    return tuple(spec for name in one if name in two for spec in _specs(name, one[name], two[name]))


def _specs(name: str, one: Any, two: Any) -> Iterator[InputSpec]:
    """Yield tensors, lists of them and numbers; nothing for other values, such as a cache."""
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor) and one.dim() == two.dim():
        shape = tuple(_size(*sizes) for sizes in zip(one.shape, two.shape, strict=True))
        dtype = str(one.dtype).removeprefix("torch.")
        if None not in shape and dtype in DTYPES:
            yield _with_values(InputSpec(name, tuple(filter(None, shape)), dtype), one)
    elif isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)) and len(one) == len(two):
        for place, each in enumerate(zip(one, two, strict=True)):
            yield from _specs(f"{name}.{place}", *each)
    elif isinstance(one, (bool, int, float, str)) and one == two:
        yield InputSpec.constant(name, one)


def _size(one: int, two: int) -> int | str | None:
    """Return a size that is equal for both batches, or follows them; None for any other."""
    first, second = BATCHES
    if one == two:
        return one
    if one * second != two * first or one % first:
        return None
    return BATCH if one == first else f"{one // first}*{BATCH}"


def _with_values(spec: InputSpec, tensor: torch.Tensor) -> InputSpec:
    """Add the bounds of the values in an integer tensor, as far as they are known."""
    if tensor.is_floating_point():
        return spec
    # A process that measures a real step has no virtual accelerator, and must not get one.
    from memlint.accelerator.ranges import largest  # noqa: PLC0415
    from memlint.accelerator.values import content  # noqa: PLC0415

    known, high = content(tensor), largest(tensor)
    low = None if known is None or not known.numel() else int(known.min())
    if known is not None and low is not None and tensor.dtype is not torch.bool and low != int(known.max()):
        item = known[0] if spec.is_batched else known
        if not spec.is_batched and item.dim() and item.numel() <= _MOST_VALUES:
            item = item[0]
        if item.dim() and item.numel() <= _MOST_VALUES:
            return InputSpec(spec.name, spec.shape, spec.dtype, runs=tuple((int(n), 1) for n in item.flatten()))
    return InputSpec(spec.name, spec.shape, spec.dtype, low=low, high=None if high is None else high + 1)

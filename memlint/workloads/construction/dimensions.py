"""The named dimensions of a Workload besides the batch: their sources, and changes of their sizes."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from inspect import Parameter
from typing import Any

from torch import nn

from memlint.base.errors import UsageError
from memlint.targets.workload import BATCH, Workload, is_size
from memlint.workloads.constructor_values import parameters
from memlint.workloads.huggingface.configs import is_config


def resized(workload: Workload, sizes: Mapping[str, int]) -> Workload:
    """Return a completed Workload with other sizes of some of its dimensions.

    Raises UsageError for unknown dimensions and for sizes that make no sense.
    """
    refuse_untaken(workload, sizes, workload.dimensions)
    return replace(workload, dimensions={**workload.dimensions, **sizes})


def parameters_taking_sizes(target: object) -> dict[str, Parameter]:
    """Return the parameters of a target that may receive the size of a dimension; none if it is not called."""
    if isinstance(target, nn.Module) or is_config(target) or not callable(target):
        return {}
    named = parameters(target).items()
    return {name: each for name, each in named if each.kind is not each.POSITIONAL_ONLY and name != BATCH}


def implied_dimensions(target: object, arguments: Mapping[str, object]) -> dict[str, int]:
    """Return the dimensions of a function itself: parameters with a size as default that are not among the `arguments`.

    A class has none: the numbers in its constructor are settings of the model, and most are not sizes of inputs.
    """
    unbound: Any = target
    while isinstance(unbound, partial):
        unbound = unbound.func
    taking = {} if isinstance(unbound, type) else parameters_taking_sizes(target)
    defaults = {name: parameter.default for name, parameter in taking.items() if name not in arguments}
    return {name: size for name, size in defaults.items() if type(size) is int and is_size(size)}


def refuse_untaken(workload: Workload, names: Collection[str], taken: Collection[str]) -> None:
    """Raise UsageError for the first of `names` that neither the target's parameters nor the inputs have."""
    for name in names:
        if name in taken:
            continue
        known = [each for each in taken if each in workload.dimensions]
        close = get_close_matches(name, known, 1)
        sizes = ", ".join(f"{each} = {workload.dimensions[each]}" for each in known)
        hint = f"It has {sizes}." if known else "It has none besides the batch."
        hint = f"Did you mean {close[0]}? {hint}" if close else hint
        raise UsageError(
            f"{workload.name} has no dimension {name}: no parameter of its target and no input's shape takes it",
            f"{hint} To declare one, write def memlint_workload(batch, {name}=1024), or in its table "
            f'dimensions = {{ {name} = 1024 }} and "{name}" in the shape of an input.',
        )

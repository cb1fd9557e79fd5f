"""Transformer Engine 2.9: recipes of fp8, and where they are in use.

transformer_engine/common/recipe/__init__.py and pytorch/quantization.py.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from memlint.cuda.simulated import simulated
from memlint.libraries.library import Library

library = Library("transformer_engine", distribution="transformer-engine", version="2.9.0")
_provides = library.provides("transformer_engine.pytorch")
_recipe = library.provides("transformer_engine.common.recipe")


@_recipe
class Format(Enum):
    """The format of a byte; all formats have the same size."""

    E4M3, E5M2, HYBRID = range(3)


@dataclass
class Recipe:
    """How tensors get their scales."""

    fp8_format: Format = Format.HYBRID
    fp8_dpa: bool = False
    fp8_mha: bool = False


@_recipe
@dataclass
class DelayedScaling(Recipe):
    """Scales of what the largest values were before."""

    margin: int = 0
    amax_history_len: int = 1024
    amax_compute_algo: Any = "max"
    scaling_factor_compute_algo: Any = None
    reduce_amax: bool = True


@_recipe
@dataclass
class Float8CurrentScaling(Recipe):
    """Scales of what the values are: kernels make them in full, and then fp8 of them."""

    use_power_2_scales: bool = False


@_recipe
@dataclass
class MXFP8BlockScaling(Recipe):
    """A scale of a byte for each 32 values."""

    margin: int = 0


@_recipe
@dataclass
class Float8BlockScaling(Recipe):
    """A scale in float32 for each 128 values, of weights for each 128 x 128."""

    use_f32_scales: bool = False


@_recipe
@dataclass
class NVFP4BlockScaling(Recipe):
    """Four bits a value, a scale of a byte for each 16, and one in float32 of a tensor."""

    fp8_format: Format = Format.E4M3
    disable_rht: bool = False
    disable_stochastic_rounding: bool = False
    disable_2d_quantization: bool = False


for _name, _kinds in {
    "delayed": (DelayedScaling,), "float8_current_scaling": (Float8CurrentScaling,),
    "float8_per_tensor_scaling": (DelayedScaling, Float8CurrentScaling), "mxfp8": (MXFP8BlockScaling,),
    "float8_block_scaling": (Float8BlockScaling,), "nvfp4": (NVFP4BlockScaling,), "custom": (),
}.items():  # fmt: skip
    setattr(Recipe, _name, lambda self, kinds=_kinds: isinstance(self, kinds))


in_use: list[Recipe | None] = [None]
"""The recipe of each context that the program is in."""


def chosen_recipe(recipe: Recipe | None) -> Recipe:
    """The recipe, or what the GPU has if it is None. Raises AssertionError where the GPU cannot have it, as there."""
    capability = simulated().device.capability
    if capability < (8, 9):
        raise AssertionError("Device compute capability 8.9 or higher required for FP8 execution.")
    has_blocks = (10, 0) <= capability < (12, 0)
    default = Float8CurrentScaling() if capability >= (12, 0) else DelayedScaling()
    chosen = recipe or (MXFP8BlockScaling() if has_blocks else default)
    if isinstance(chosen, MXFP8BlockScaling) and not has_blocks:
        raise AssertionError("Device compute capability 10.0 or higher required for MXFP8 execution.")
    if isinstance(chosen, Float8BlockScaling) and capability < (9, 0):
        raise AssertionError("FP8 block scaled GEMM requires compute capability 9.0 or higher and CUDA >= 12.9.")
    if isinstance(chosen, NVFP4BlockScaling) and capability < (10, 0):
        raise AssertionError("Device compute capability 10.0 or higher required for NVFP4 execution.")
    return chosen


@_provides
@contextlib.contextmanager
def autocast(
    enabled: bool = True, calibrating: bool = False, recipe: Recipe | None = None, amax_reduction_group: Any = None,
    _graph: bool = False,
) -> Iterator[None]:  # fmt: skip
    """Let layers multiply in fp8 meanwhile."""
    chosen = chosen_recipe(recipe) if enabled else recipe or DelayedScaling()
    if chosen.fp8_dpa or chosen.fp8_mha or calibrating:
        library.unknown("transformer_engine.pytorch.autocast(fp8_dpa=True, fp8_mha=True, calibrating=True)")()
    with using(chosen if enabled else None):
        yield


@contextlib.contextmanager
def using(recipe: Recipe | None) -> Iterator[None]:
    """Let layers multiply by this recipe meanwhile."""
    in_use.append(recipe)
    try:
        yield
    finally:
        in_use.pop()


@_provides
def fp8_autocast(
    enabled: bool = True, calibrating: bool = False, fp8_recipe: Recipe | None = None, fp8_group: Any = None,
    _graph: bool = False,
) -> Any:  # fmt: skip
    """The same by its older name."""
    return autocast(enabled, calibrating, fp8_recipe, fp8_group)


library.modules["transformer_engine.pytorch.fp8"] = {"fp8_autocast": fp8_autocast}


def _availability(name: str, least: tuple[int, int], below: tuple[int, int] = (99, 0)) -> None:
    def available(return_reason: bool = False) -> Any:
        is_there = least <= simulated().device.capability < below
        reason = "" if is_there else f"Device compute capability {least[0]}.{least[1]} or higher required"
        return (is_there, reason) if return_reason else is_there

    available.__name__ = name
    _provides(available)


_availability("is_fp8_available", (8, 9))
_availability("is_mxfp8_available", (10, 0), below=(12, 0))
_availability("is_fp8_block_scaling_available", (9, 0))
_availability("is_nvfp4_available", (10, 0))
_availability("is_bf16_available", (8, 0))


of_weights: list[tuple[Recipe | None, bool]] = [(None, False)]
"""The recipe of weights that are made now, and whether the host keeps them in full, in each context."""


@_provides
@contextlib.contextmanager
def quantized_model_init(
    enabled: bool = True, recipe: Recipe | None = None, preserve_high_precision_init_val: bool = False
) -> Iterator[None]:
    """Let layers that are made meanwhile have their weights in fp8 alone, and the host what they were made of."""
    of_weights.append((chosen_recipe(recipe) if enabled else None, preserve_high_precision_init_val))
    try:
        yield
    finally:
        of_weights.pop()


@_provides
def fp8_model_init(enabled: bool = True, **options: Any) -> Any:
    """The same by its older name."""
    return quantized_model_init(enabled, **options)

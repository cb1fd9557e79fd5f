"""Sizes of inputs that nothing states, and that the model takes as well as others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from memlint.targets.workload import SEQUENCE, InputSpec
from memlint.workloads.guess.dimension_names import are_unknown, dimension_names, with_stated_times
from memlint.workloads.guess.first_guess import size_of_its_own
from memlint.workloads.guess.layers import AUDIO_LENGTH, SERIES_LENGTH
from memlint.workloads.guess.repair import Specs
from memlint.workloads.guess.trial_forward import TrialModel
from memlint.workloads.model_sizes import DEFAULT_LENGTH, ModelSizes

_OTHER_SIDE = 32
"""By how much larger an image, or longer a series, is with which a model is tried for whether it takes only one."""
_MANY = 4
"""Dimensions, the batch among them, of an input that is no vector and no series of them."""
_SMALLEST = (1, 2, 3)
"""Numbers of steps with which a model is tried first, and which no series has."""
_MADE_UP = (DEFAULT_LENGTH, SERIES_LENGTH, AUDIO_LENGTH)
"""Lengths of series and of sound that nothing states."""


def unstated_size(stage: TrialModel, specs: Specs, dimensions: Mapping[str, int], sizes: ModelSizes) -> str:
    """Return the size of images or the length of texts that was made up, where the model takes others as well."""
    if dimensions.get(SEQUENCE) == DEFAULT_LENGTH and sizes.length is None:
        return f"texts of {DEFAULT_LENGTH} tokens"
    stated = (sizes.length, sizes.samples, sizes.sound, sizes.series)
    if all(each is None for each in stated):
        for length in _MADE_UP:
            longer = tuple(_of_length(spec, length, length + _OTHER_SIDE) for spec in specs)
            if longer != specs and stage.attempt(longer).error is None:
                return f"sequences of {length} steps"
    of_series = {spec.shape[1] for spec in specs if _is_series(spec)}.difference(stated)
    for length in filter(of_series.__contains__, _SMALLEST):
        longer = tuple(_with_steps(spec, length, length + 1) for spec in specs)
        if stage.attempt(longer).error is None:
            return f"sequences of {length} steps"
    if made_up := made_up_input(stage, specs, sizes):
        return made_up.described(dimensions)
    images = [spec.shape[-2:] for spec in specs if spec.dtype == "float32" and len(spec.shape) in (4, 5)]
    if not images or sizes.image_size is not None or size_of_its_own(stage.model) is not None:
        return ""
    height, width = images[0]
    if not isinstance(height, int) or not isinstance(width, int):
        return ""
    other = (height + _OTHER_SIDE, width + _OTHER_SIDE)
    others = (replace(s, shape=(*s.shape[:-2], *other)) if s.shape[-2:] == images[0] else s for s in specs)
    return f"images of {height} x {width} pixels" if stage.attempt(tuple(others)).error is None else ""


def unstated_input(
    stage: TrialModel, specs: Specs, dimensions: Mapping[str, int], entries: Mapping[str, nn.Module]
) -> str:
    """Return an input that the model takes with another size, too, which no layer asks for.

    It has many dimensions and goes into no layer, or is sound: numbers that go into a Conv1d. `entries` are the layers
    of inputs by their names.
    """
    for spec in specs:
        is_sound = isinstance(entries.get(spec.name), nn.Conv1d) and len(spec.shape) == 2
        is_open = spec.name not in entries and len(spec.shape) >= _MANY
        if spec.dtype != "float32" or not (is_sound or is_open):
            continue
        for place, size in enumerate(spec.shape[1:], 1):
            larger = (
                *spec.shape[:place],
                size + _OTHER_SIDE if isinstance(size, int) else size,
                *spec.shape[place + 1 :],
            )
            others = [replace(each, shape=larger) if each is spec else each for each in specs]
            if larger != spec.shape and stage.attempt(others, dimensions).error is None:
                return spec.described(dimensions)
    return ""


def made_up_input(stage: TrialModel, specs: Specs, sizes: ModelSizes) -> InputSpec | None:
    """Return an input of unknown dimensions that the model takes with other sizes too, which nothing states."""
    for spec in specs:
        names = dimension_names(stage.model, spec.name)
        if not are_unknown(names) or len(names) != len(spec.shape):
            continue
        for place, size in enumerate(spec.shape[1:], 1):
            other = (*spec.shape[:place], size + 1 if isinstance(size, int) else size, *spec.shape[place + 1 :])
            is_stated = with_stated_times(names, other, sizes) == spec.shape
            larger = [replace(each, shape=other) if each is spec else each for each in specs]
            if not is_stated and stage.attempt(larger).error is None:
                return spec
    return None


def _is_series(spec: InputSpec) -> bool:
    return spec.dtype == "float32" and len(spec.shape) == 3


def _with_steps(spec: InputSpec, length: int, other: int) -> InputSpec:
    """Return a series of vectors with other steps than `length`."""
    is_one = _is_series(spec) and spec.shape[1] == length
    return replace(spec, shape=(spec.shape[0], other, spec.shape[2])) if is_one else spec


def _of_length(spec: InputSpec, length: int, other: int) -> InputSpec:
    """Return a series of numbers with other steps than `length`."""
    if spec.dtype != "float32" or len(spec.shape) not in (2, 3):
        return spec
    return replace(spec, shape=(spec.shape[0], *(other if size == length else size for size in spec.shape[1:])))

"""Inputs of diffusers' models, from their configs: latents, time steps, encoded texts."""

from __future__ import annotations

import inspect
import linecache
import math
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from memlint.accelerator.private import Convolution
from memlint.base.frames import line_of, text_of
from memlint.base.signatures import signature_of
from memlint.targets.workload import BATCH, CONSTANT, InputSpec
from memlint.workloads.huggingface.diffusion_inputs import inputs_beside, inputs_for, required_of
from memlint.workloads.huggingface.diffusion_sizes import (
    LATENT_NAMES,
    SAMPLES,
    TEXT,
    channels_of,
    frames_of,
    patch_of,
    sizes_of,
    spatial,
)
from memlint.workloads.huggingface.documented import documented_shape, documented_sizes

MOST_ADDED = 4
"""Maximum number of channels that a model adds to a latent itself: masks of given parts and of padding."""
_ASSIGNED = re.compile(r"^\s*[\w, ]+ = ")
_TOO_MANY = re.compile(r"too many indices for tensor of dimension 1")
_PRODUCT = re.compile(r"\(\d+x(\d+) and (\d+)x\d+\)")
_MISMATCH = re.compile(r"tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension 1")
_UNPACKED = re.compile(r"\s*((?:\w+, )+\w+) = (\w+)\.(?:shape|size\(\))")
"""The statement `batch, frames, height, width = x.shape` in a model's code."""
Specs = tuple[InputSpec, ...]


def is_diffusion_model(value: object) -> bool:
    """Return True if `value` is a model of diffusers."""
    module = sys.modules.get("diffusers.models.modeling_utils")
    return module is not None and isinstance(value, module.ModelMixin)


def candidates(model: Any) -> Iterator[Specs]:
    """Yield inputs for `model`, the likeliest first; none if its config does not describe them."""
    parameters = signature_of(model.forward).parameters
    latent = next((name for name in LATENT_NAMES if name in parameters), None)
    channels = channels_of(model)
    if latent is None or channels is None:
        yield from _documented_alone(model, parameters)
        return
    said = documented_shape(model.forward, latent, sizes_of(model))
    layouts = _layouts(model, channels, parameters)
    for shape in dict.fromkeys((*([said[1:]] if said is not None else ()), *layouts)):
        spec = InputSpec(latent, (BATCH, *shape))
        others = list(inputs_beside(model, parameters, shape))
        needed = [name for name in parameters if name in required_of(parameters) - names_of(others) - {latent}]
        others += [each for name in needed for each in inputs_for(model, name, shape)]
        if (split := _with_row_input(model, spec, needed)) is not None:
            yield (*split, *(each for each in others if each.name != split[1].name))
        yield (spec, *others)
        text = [each for each in others if not each.name.startswith("encoder_attention_mask")]
        if len(text) < len(others):
            yield (spec, *text)
        documented = [_as_documented(model, each) for each in others]
        if documented != others:
            yield (spec, *documented)


def _with_row_input(model: Any, latent: InputSpec, names: Iterable[str]) -> Specs | None:
    """Return the latent and the input beside its rows, if the config's channels count both together.

    The docstring gives the rows of both but no width for the second; the latent has as many channels as the output.
    """
    rows, whole = documented_sizes(model.forward, latent.name)[:-1], latent.shape[-1]
    given = [layer for layer in model.modules() if isinstance(layer, nn.Linear | Convolution)]
    own = (given[-1].out_features if isinstance(given[-1], nn.Linear) else given[-1].out_channels) if given else 0
    for name in names:
        other = documented_sizes(model.forward, name)
        if (
            rows
            and other[:-1] == rows
            and other[-1] not in sizes_of(model)
            and isinstance(whole, int)
            and 0 < own < whole
        ):
            shape = latent.shape[:-1]
            return replace(latent, shape=(*shape, own)), InputSpec(name, (*shape, whole - own))
    return None


def asked(model: Any, specs: Specs, error: Exception) -> Specs:
    """Return `specs` changed as the line of the model's code that raised `error` requires.

    The changes are: optional inputs that it names, the rank that it unpacks, and floating-point time steps.
    """
    parameters, text = signature_of(model.forward).parameters, text_of(error)
    times = [spec for spec in specs if spec.dtype == "int64" and "time" in spec.name]
    if times and "Long and Float" in text:
        return tuple(replace(spec, dtype="float32", low=0.0) if spec in times else spec for spec in specs)
    if (match := _UNPACKED.match(line_of(error))) is not None and "to unpack" in text:
        sizes = sizes_of(model)
        shape = tuple(sizes.get(name, 0) for name in re.findall(r"\w+", match[1]))
        names = (match[2], *(LATENT_NAMES if match[2] == "x" else ()))
        spec = next((spec for name in names for spec in specs if spec.name == name), None)
        if spec is not None and 0 not in shape:
            alike = times if spec in times else [spec]
            return tuple(replace(each, shape=shape) if each in alike else each for each in specs)
    if (product := _PRODUCT.search(text)) is not None and specs:
        changed = _with_channels(model, specs, int(product[1]), int(product[2]))
        if changed is not None:
            return changed
    statement = _ASSIGNED.sub("", _statement(model, error))
    if times and _TOO_MANY.search(text) and any(f"{spec.name}[:, " in statement + line_of(error) for spec in times):
        return tuple(replace(spec, shape=(BATCH, frames_of(model.config))) if spec in times else spec for spec in specs)
    if (mismatch := _MISMATCH.search(text)) is not None:
        both = int(mismatch[1]), int(mismatch[2])
        if (changed := _as_long(specs, both) or _for_each_frame(specs, both)) is not None:
            return changed
    words = {*re.findall(r"\w+", f"{statement} {text}")}
    shape = specs[0].shape[1:] if specs else ()
    known = names_of(specs)
    more = (inputs_for(model, name, shape) for name in parameters if name in words - known)
    return (*specs, *(spec for each in more for spec in each))


def _with_channels(model: Any, specs: Specs, got: int, wanted: int) -> Specs | None:
    """Return `specs` with the number of channels whose patches have as many features as the failing layer accepts.

    All latents with the same documented shape change. None if the layer's input was not a patch of them.
    """
    same, patch, channels = documented_sizes(model.forward, specs[0].name), math.prod(patch_of(model.config)), 0
    alike = [spec for spec in specs if len(same) > 3 and documented_sizes(model.forward, spec.name) == same]
    if len(alike) > 1 and isinstance(alike[0].shape[1], int):
        channels = alike[0].shape[1]
    added, fewer = got // patch - channels, (got - wanted) // patch
    if not channels or got % patch or wanted % patch or not 0 <= added <= MOST_ADDED or fewer >= channels:
        return None
    return tuple(
        replace(spec, shape=(BATCH, channels - fewer, *spec.shape[2:])) if spec in alike else spec for spec in specs
    )


def _as_long(specs: Specs, sizes: tuple[int, int]) -> Specs | None:
    """Give ids of the length of a text the length of the input beside them."""
    other = next((size for size in sizes if size != TEXT), None) if TEXT in sizes else None
    ids = [spec for spec in specs if spec.shape == (BATCH, TEXT) and "encoder" not in spec.name]
    if other is None or not any(spec.dtype == "int64" and spec.high not in (None, 2) for spec in ids):
        return None
    return tuple(replace(spec, shape=(BATCH, other)) if spec in ids else spec for spec in specs)


def _for_each_frame(specs: Specs, sizes: tuple[int, int]) -> Specs | None:
    """Repeat the text of a video for each of its frames, which attention treats as items of the batch."""
    video = specs[0].shape
    frames = video[2] if len(video) == 5 else None
    if not isinstance(frames, int) or frames == 1 or max(sizes) != frames * min(sizes):
        return None
    return tuple(
        replace(spec, shape=(f"{frames}*{BATCH}", *spec.shape[1:]))
        if spec.name == "encoder_hidden_states" and spec.shape[0] == BATCH
        else spec
        for spec in specs
    )


def names_of(specs: Iterable[InputSpec]) -> set[str]:
    """Return the parameters of `forward` that inputs are for."""
    return {spec.name.partition(".")[0].removesuffix("[]") for spec in specs}


def _statement(model: Any, error: Exception) -> str:
    """Return the statement of the model's own `forward` that the error went through."""
    code = inspect.unwrap(type(model).forward).__code__
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == code.co_filename and frame.name == code.co_name and frame.lineno is not None:
            lines = range(frame.lineno, (frame.end_lineno or frame.lineno) + 1)
            return " ".join(linecache.getline(frame.filename, number) for number in lines)
    return ""


def _documented_alone(model: Any, parameters: Mapping[str, Any]) -> Iterator[Specs]:
    """Yield the required inputs of `forward`, by its docstring, its config and its code."""
    needed = (name for name in parameters if name in required_of(parameters))
    yield tuple(spec for name in needed for spec in inputs_for(model, name))


def _as_documented(model: Any, spec: InputSpec) -> InputSpec:
    shape = documented_shape(model.forward, spec.name, sizes_of(model))
    return spec if shape is None or spec.dtype == CONSTANT else replace(spec, shape=shape)


def _layouts(model: Any, channels: int, parameters: Mapping[str, Any]) -> Iterator[tuple[int, ...]]:
    """Yield shapes of a latent: first by the kind of the layer that its channels go into, then the others."""
    config = model.config
    height, width = spatial(config, encoded="sample" not in parameters or "timestep" in parameters)
    frames = frames_of(config)
    image, video, of_one = (channels, height, width), (channels, frames, height, width), (channels, 1, height, width)
    is_video = any(word in type(model).__name__ for word in ("3D", "Video", "Motion", "Temporal"))
    tokens = (frames * height * width if "num_frames" in parameters else height * width, channels)
    by_layer = {
        nn.Conv3d: (video, (frames, channels, height, width), of_one),
        nn.Conv2d: (image, (frames, channels, height, width), video, of_one),
        nn.Conv1d: ((channels, SAMPLES), (channels, height)),
        nn.Linear: (tokens, *((video,) if is_video else (of_one, video)), image),
    }
    entries = (layer for layer in model.modules() if _takes(layer, channels))
    entry = next((kind for layer in entries for kind in by_layer if isinstance(layer, kind)), nn.Linear)
    if entry is nn.Linear or not {"img_ids", "img_shapes"}.isdisjoint(parameters):
        yield from by_layer[nn.Linear]
    shapes = by_layer.get(entry, ())
    yield from sorted(shapes, key=len, reverse=True) if is_video else shapes


def _takes(layer: nn.Module, channels: int) -> bool:
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return layer.in_channels == channels
    return False

"""Inputs for the parameters of a diffusers model: by their names, the docstring, the config and the code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from memlint.base.signatures import signature_of
from memlint.targets.workload import BATCH, InputSpec
from memlint.workloads.huggingface.diffusion_sizes import (
    COLOURS,
    FRAMES_IN_ONE,
    LATENT_NAMES,
    PIXELS,
    TEXT,
    TEXT_WIDTHS,
    first,
    frames_of,
    grid_of,
    patch_of,
    rows_of,
    sizes_of,
    spatial,
)
from memlint.workloads.huggingface.documented import documented, documented_shape, documented_sizes
from memlint.workloads.name_table import BESIDE_LATENT, DIFFUSERS, DIFFUSION_TIMES, POOLED, WITH_VIDEO, first_input
from memlint.workloads.receiving_layers import first_receiving_layer, receiving_layer, receiving_layers_of_entries

_GRID = re.compile(r"(?i)list\[list\[tuple\[int, int, int\]\]\]")
"""An annotation: frames, height and width of each picture of each item."""
_WITHOUT_LATENT = (*DIFFUSION_TIMES, "encoder_hidden_states")
"""Inputs that do not depend on the latent."""
_PAIRS = re.compile(r"list of `\((\w+), (\w+)\)`")


def required_of(parameters: Mapping[str, Any]) -> set[str]:
    """Names of the parameters without a default."""
    return {name for name, each in parameters.items() if each.default is each.empty}


def inputs_for(model: Any, name: str, shape: tuple[int | str, ...] = ()) -> Iterator[InputSpec]:
    """Yield inputs for the parameter `name`, beside a latent of `shape`.

    The first way that says something of it; nothing where none does.
    """
    spec = _beside_latent(model, name, shape) if shape or name in _WITHOUT_LATENT else None
    if spec is not None:
        yield spec
        return
    for way in (_of_film, _as_documented, _of_config, _by_name, _by_code):
        if found := tuple(way(model, name)):
            yield from found
            return


def _of_film(model: Any, name: str) -> Iterator[InputSpec]:
    """Yield the inputs beside a video: positions along its axes, the video in pixels, the numbers of its frames."""
    if name.endswith("rope_pos"):
        yield from _positions(model, name)
    elif (spec := first_input(WITH_VIDEO, name, lambda word: _of_video(model.config, word))) is not None:
        yield spec


def _of_video(config: Any, word: str) -> int:
    return {
        "@colours": COLOURS,
        "@frames": frames_of(config),
        "@frames_in_pixels": (frames_of(config) - 1) * FRAMES_IN_ONE + 1,
        "@side": first(config, ("image_size", "motion_encoder_size")) or PIXELS,
    }[word]


def _as_documented(model: Any, name: str) -> Iterator[InputSpec]:
    """Yield inputs by the shape in the docstring, or by the pairs that it says are in a list."""
    text = documented(model.forward, name)
    if (shape := documented_shape(model.forward, name, _sizes_here(model, name))) is not None:
        yield _of_shape(model, name, shape)
    elif (pair := _PAIRS.search(text)) is not None:
        width = first(model.config, (*TEXT_WIDTHS, "d_model", "hidden_size")) or 1
        yield InputSpec(f"{name}.0.0", (BATCH, TEXT, width))
        if pair[2].endswith("mask"):
            yield InputSpec(f"{name}.0.1", (BATCH, TEXT), "bool", 1, 2)


def _sizes_here(model: Any, name: str) -> dict[str, int | str]:
    """The sizes that the docstring names of one parameter: lengths of texts, and the width that its layer takes."""
    written, layer = documented_sizes(model.forward, name), receiving_layer(model, name)
    lengths = {each: TEXT for each in written if each.endswith(("_sequence_length", "_seq_len"))}
    width = {written[-1]: layer.in_features} if len(written) > 2 and isinstance(layer, nn.Linear) else {}
    return {**lengths, **width, **sizes_of(model)}


def _of_config(model: Any, name: str) -> Iterator[InputSpec]:
    """A value of that name, or the width that the config has for such an input."""
    stem = name.removesuffix("s")
    of_each, of_all = model.config.get(f"{stem}_encode_dim"), model.config.get(f"{stem}_embed_dim")
    if (value := model.config.get(name)) is not None:
        yield from _constants(name, value)
    elif of_each and of_all:  # numbers, each embedded for itself
        yield InputSpec(name, (BATCH, of_all // of_each))
    elif name.startswith("pooled") and (width := first(model.config, POOLED.split("|"))) is not None:
        yield InputSpec(name, (BATCH, width))


def _by_name(model: Any, name: str) -> Iterator[InputSpec]:
    kind = str(signature_of(model.forward).parameters[name].annotation)
    if _GRID.search(kind):
        yield from _constants(f"{name}[].0", grid_of(model))
    elif "int" in kind and name.startswith("audio") and name.endswith("frames"):
        yield InputSpec.constant(name, rows_of(model)["audio"])
    elif (spec := first_input(DIFFUSERS, name, {"@text_length": TEXT, "@after_text_length": TEXT + 1}.get)) is not None:
        yield spec


def _by_code(model: Any, name: str) -> Iterator[InputSpec]:
    """Yield inputs by the layers that the code of `forward` gives the parameter, or its entries, to."""
    if layers := receiving_layers_of_entries(model, name):
        for place, layer in enumerate(layers):
            yield from _taken(f"{name}.{place}", first_receiving_layer(layer))
    elif name not in LATENT_NAMES:
        yield from _taken(name, receiving_layer(model, name))


def _of_shape(model: Any, name: str, shape: tuple[int | str, ...]) -> InputSpec:
    """An input of a documented shape: numbers of what, its name and the docstring say."""
    if name.endswith(("_indices", "_indexes")):  # of rows, or of what stands under the rest of the name
        of = documented_shape(model.forward, re.sub("_ind(ic|ex)es$", "", name), sizes_of(model))
        if of is not None:
            return InputSpec(name, shape, "int64", high=of[0] if isinstance(of[0], int) else 1)
        streams = list(rows_of(model))
        before = streams[: streams.index(stem)] if (stem := name.partition("_")[0]) in streams else []
        return InputSpec(name, shape, "int64", low=sum(rows_of(model)[each] for each in before), counted=True)
    layer = receiving_layer(model, name)
    if isinstance(layer, nn.Embedding):
        return InputSpec(name, shape, "int64", high=layer.num_embeddings)
    if name.endswith(("_ids", "_id", "_tokens", "_tags")) and not isinstance(layer, nn.Linear):
        kinds = {int(number) for number in re.findall(r"`(\d)`", documented(model.forward, name))}
        rows = max(kinds, default=0) + 1 if name.endswith("_tags") else first(model.config, ("vocab_size",)) or 2
        return InputSpec(name, shape, "int64", high=rows)
    if name.endswith("mask"):
        return InputSpec(name, shape, "bool", 1, 2)
    is_part = name.startswith("time") or name.endswith("_time") or "`[0, 1]`" in documented(model.forward, name)
    return InputSpec(name, shape, "float32", *((0.0, 1.0) if is_part else (None, None)))


def _constants(name: str, value: object) -> Iterator[InputSpec]:
    """A value of a config, and the entries of a list as inputs of their own."""
    if isinstance(value, bool | int | float | str):
        yield InputSpec.constant(name, value)
    elif isinstance(value, Sequence):
        for place, each in enumerate(value):
            yield from _constants(f"{name}.{place}", each)


def _taken(name: str, layer: nn.Module | None) -> Iterator[InputSpec]:
    """Yield the text input that a layer takes, or one of the same length."""
    if isinstance(layer, nn.Linear):
        is_pooled = "pooled" in name
        yield InputSpec(name, (BATCH, layer.in_features) if is_pooled else (BATCH, TEXT, layer.in_features))
    elif isinstance(layer, nn.Embedding):
        yield InputSpec(name, (BATCH, TEXT), "int64", high=layer.num_embeddings)


def _positions(model: Any, name: str) -> Iterator[InputSpec]:
    """Yield the positions of a text, or of a video along each of its axes, in patches."""
    if name.startswith("text"):
        yield InputSpec(name, (TEXT,), "int64", counted=True)
        return
    height, width = spatial(model.config, encoded=True)
    sizes = zip((frames_of(model.config), height, width), patch_of(model.config), strict=True)
    for axis, (size, patch) in enumerate(sizes):
        yield InputSpec(f"{name}.{axis}", (size // patch,), "int64", counted=True)


def _beside_latent(model: Any, name: str, shape: tuple[int | str, ...]) -> InputSpec | None:
    """The parameter `name`, as it goes with a latent of `shape`; None where nothing says what it is."""
    config, parameters = model.config, signature_of(model.forward).parameters
    length = config.get("max_text_seq_length") or (77 if "sample" in parameters else TEXT)
    if name == "img_mask":
        return _slots(model, length, shape)
    facts = {
        "text": first(config, TEXT_WIDTHS) is not None,
        "second_text": bool(config.get("text_embed_2_dim")),
        "guidance": bool(config.get("guidance_embeds")),
        "rows": len(shape) == 2,
    }
    words: dict[str, Callable[[], Any]] = {
        "@latent": lambda: shape,
        "@behind_channels": lambda: shape[1:],
        "@grid": lambda: shape[-2:] if len(shape) > 2 else (1, 1),
        "@rows": lambda: shape[0],
        "@text": lambda: length,
        "@text_width": lambda: first(config, TEXT_WIDTHS),
        "@axes": lambda: len(config.get("axes_dims_rope") or (0, 0, 0)),
        "@frames": lambda: frames_of(config),
        "@height": lambda: spatial(config, encoded=True)[0],
        "@width": lambda: spatial(config, encoded=True)[1],
        "@num_time_ids": lambda: _num_time_ids(config),
        "@condition": lambda: _condition(model, shape),
    }
    holding = frozenset(fact for fact, holds in facts.items() if holds)
    return first_input(
        BESIDE_LATENT, name, lambda word: words[word]() if word in words else first(config, (word,)), holding
    )


def inputs_beside(model: Any, parameters: Mapping[str, Any], shape: tuple[int | str, ...]) -> Iterator[InputSpec]:
    """Yield the inputs beside a latent of `shape`, among those that the model needs or takes."""
    config, required = model.config, required_of(parameters)
    optional = {
        *("timestep", "encoder_hidden_states", "encoder_attention_mask", "pooled_projections", "class_labels"),
        *("guidance", "img_ids", "txt_ids", "num_frames", "height", "width", "global_hidden_states"),
    }
    for name in parameters:
        spec = _beside_latent(model, name, shape) if name in required | optional else None
        if spec is not None and name in DIFFUSION_TIMES and _is_packed(documented_sizes(model.forward, name)):
            yield from _as_documented(model, name)
        elif spec is not None:
            yield spec
    if "added_cond_kwargs" in parameters:
        yield from _added(config)
    if "img_shapes" in parameters:  # one image: frames, height and width of its latents
        sides = (1, *spatial(config, encoded=True))
        yield from (InputSpec.constant(f"img_shapes.0.0.{place}", size) for place, size in enumerate(sides))


def _is_packed(sizes: tuple[str, ...]) -> bool:
    """Return True if documented sizes do not begin with the batch, as of an input that all of its rows share."""
    return bool(sizes) and sizes[0].startswith("num_")


def _added(config: Any) -> Iterator[InputSpec]:
    """The second text encoder and the sizes of SDXL, the sizes of PixArt."""
    width, total = config.get("addition_time_embed_dim"), config.get("projection_class_embeddings_input_dim")
    if config.get("addition_embed_type") == "text_time" and width and total:
        yield InputSpec("added_cond_kwargs.text_embeds", (BATCH, total - 6 * width))
        yield InputSpec("added_cond_kwargs.time_ids", (BATCH, 6))
    if "use_additional_conditions" in config:
        yield InputSpec("added_cond_kwargs.resolution", (BATCH, 2))
        yield InputSpec("added_cond_kwargs.aspect_ratio", (BATCH, 1))


def _num_time_ids(config: Any) -> int | None:
    width, total = config.get("addition_time_embed_dim"), config.get("projection_class_embeddings_input_dim")
    return total // width if width and total else None


def _condition(model: Any, shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """The picture that a ControlNet follows: larger than the latent by what its embedding shrinks it, or as that is."""
    channels = first(model.config, ("conditioning_channels", "ctrl_conditioning_channels"))
    if not channels:
        return shape
    layers = getattr(model, "controlnet_cond_embedding", nn.Identity()).modules()
    factor = math.prod(layer.stride[-1] for layer in layers if isinstance(layer, nn.Conv2d | nn.Conv3d))
    return (channels, *shape[1:-2], *(factor * size for size in shape[-2:]))


def _slots(model: Any, length: int, shape: tuple[Any, ...]) -> InputSpec | None:
    """A text and the slots of its picture behind it, each of which stands for `2x2` latents as the docstring says."""
    group = re.search(r"`(\d)x(\d)`", documented(model.forward, "img_mask"))
    if group is None or len(shape) != 2:
        return None
    slots = shape[0] // (int(group[1]) * int(group[2]))
    return InputSpec("img_mask", (BATCH, length + slots), "bool", 1, 2, runs=((0, length),))

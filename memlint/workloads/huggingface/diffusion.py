"""The inputs of diffusers' models, from their configs: latents, times, texts that are encoded already."""

from __future__ import annotations

import inspect
import linecache
import math
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from memlint.base.frames import line_of, text_of
from memlint.base.signatures import signature_of
from memlint.workloads.guess.takers import first_taker, taker, takers_of_entries
from memlint.workloads.huggingface.documented import documented, documented_shape, documented_sizes, solved
from memlint.workloads.spec import BATCH, CONSTANT, InputSpec

LATENTS = 64
"""Height and width of latents where the config does not say: an image of 512 through a VAE that shrinks it 8 times."""
PIXELS = 256
"""Height and width of what an autoencoder gets, where its config does not say."""
TEXT, TOKENS = 256, 1024
"""Tokens of a text, and of what is neither a text nor an image."""
FRAMES = 9
"""Of a film: autoencoders that look at the past alone take one frame and multiples of 4 or 8."""
FRAMES_IN_ONE, COLOURS = 4, 3
"""Frames of a film that one of its latents stands for, as in the autoencoders of Wan, and colours of a pixel."""
TIMES = 1000
"""Steps of the noise schedule."""
SAMPLES = 65_536
"""Of a recording; a power of two, which codecs halve many times."""
CLIP_WIDTH, CLIP_TOKENS = 1280, 257
"""Features of an image from CLIP's largest encoders where the config does not say their width: ViT-H has 1,280."""
_TEXT_WIDTHS = (
    *("encoder_hid_dim", "caption_channels", "joint_attention_dim", "text_embed_dim", "text_dim", "cond_token_dim"),
    *("context_in_dim", "cap_feat_dim", "crossattn_proj_in_channels", "cross_attention_input_dim", "condition_dim"),
    *("encoder_hidden_states_channels", "text_hidden_dim", "llm_features_dim", "in_text_dim", "cap_feat_dim"),
    *("cross_attention_dim", "encoder_hidden_size"),
)
_IMAGE_WIDTHS = ("image_embed_dim", "image_proj_dim", "image_dim")
_CHANNELS = (
    "in_channels",
    "in_visual_dim",
    "input_channels",
    "io_channels",
    "num_channels",
    "audio_channels",
    "in_dim",
    "latent_channels",
)
_POOLED_WIDTHS = ("pooled_projection_dim", "in_text_dim2", "cond_embed_dim")
_LATENT_NAMES = ("sample", "hidden_states", "x", "z")
_GRID = re.compile(r"(?i)list\[list\[tuple\[int, int, int\]\]\]")
"""An annotation: frames, height and width of each picture of each item."""
_TIMES = ("timestep", "timesteps", "t", "timestep_r", "r_timestep", "timestep_ratio", "fps")
_ASSIGNED = re.compile(r"^\s*[\w, ]+ = ")
_TOO_MANY = re.compile(r"too many indices for tensor of dimension 1")
_PRODUCT = re.compile(r"\(\d+x(\d+) and (\d+)x\d+\)")
_MISMATCH = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension 1")
_PAIRS = re.compile(r"list of `\((\w+), (\w+)\)`")
_UNPACKED = re.compile(r"\s*((?:\w+, )+\w+) = (\w+)\.(?:shape|size\(\))")
"""`batch, frames, height, width = x.shape` in a model's code."""

Specs = tuple[InputSpec, ...]


def is_diffusion_model(value: object) -> bool:
    """Whether `value` is a model of diffusers."""
    module = sys.modules.get("diffusers.models.modeling_utils")
    return module is not None and isinstance(value, module.ModelMixin)


def candidates(model: Any) -> Iterator[Specs]:
    """Give inputs for `model`, the likeliest first; none where its config says nothing of them."""
    parameters = signature_of(model.forward).parameters
    latent = next((name for name in _LATENT_NAMES if name in parameters), None)
    channels = _channels(model)
    if latent is None or channels is None:
        yield from _documented_alone(model, parameters)
        return
    said = documented_shape(model.forward, latent, _sizes(model))
    layouts = _layouts(model, channels, parameters)
    for shape in dict.fromkeys((*([said[1:]] if said is not None else ()), *layouts)):
        spec = InputSpec(latent, (BATCH, *shape))
        others = list(_others(model, parameters, shape))
        needed = (name for name in parameters if name in _required(parameters) - _names(others) - {latent})
        others += [each for name in needed for each in _inputs(model, name, shape)]
        yield (spec, *others)
        text = [each for each in others if not each.name.startswith("encoder_attention_mask")]
        if len(text) < len(others):
            yield (spec, *text)
        documented = [_as_documented(model, each) for each in others]
        if documented != others:
            yield (spec, *documented)


def asked(model: Any, specs: Specs, error: Exception) -> Specs:
    """`specs` as the line of the model's code asks for that raised `error`.

    With optional inputs that it names, of the rank that it unpacks, and with times of floating point.
    """
    parameters, text = signature_of(model.forward).parameters, text_of(error)
    times = [spec for spec in specs if spec.dtype == "int64" and "time" in spec.name]
    if times and "Long and Float" in text:
        return tuple(replace(spec, dtype="float32", low=0.0) if spec in times else spec for spec in specs)
    if (match := _UNPACKED.match(line_of(error))) is not None and "to unpack" in text:
        sizes = _sizes(model)
        shape = tuple(sizes.get(name, 0) for name in re.findall(r"\w+", match[1]))
        names = (match[2], *(_LATENT_NAMES if match[2] == "x" else ()))
        spec = next((spec for name in names for spec in specs if spec.name == name), None)
        if spec is not None and 0 not in shape:
            alike = times if spec in times else [spec]
            return tuple(replace(each, shape=shape) if each in alike else each for each in specs)
    if (product := _PRODUCT.search(text)) is not None:
        more, rest = divmod(int(product[1]) - int(product[2]), math.prod(_patch(model.config)))
        same = documented_sizes(model.forward, specs[0].name)
        alike = [spec for spec in specs if same and documented_sizes(model.forward, spec.name) == same]
        if more and not rest and len(alike) > 1 and len(same) > 3:
            return tuple(_less_channels(spec, more) if spec in alike else spec for spec in specs)
    statement = _ASSIGNED.sub("", _statement(model, error))
    if times and _TOO_MANY.search(text) and any(f"{spec.name}[:, " in statement + line_of(error) for spec in times):
        return tuple(replace(spec, shape=(BATCH, _frames(model.config))) if spec in times else spec for spec in specs)
    if (mismatch := _MISMATCH.search(text)) is not None and (longer := _as_long(specs, mismatch)) is not None:
        return longer
    if isinstance(error, KeyError) and (field := _field(model, specs, str(error.args[0]))) is not None:
        return (*specs, field)
    words = {*re.findall(r"\w+", f"{statement} {text}")}
    shape = specs[0].shape[1:] if specs else ()
    known = _names(specs)
    more = (_inputs(model, name, shape) for name in parameters if name in words - known)
    return (*specs, *(spec for each in more for spec in each))


def _less_channels(spec: InputSpec, number: int) -> InputSpec:
    channels = spec.shape[1]
    is_enough = isinstance(channels, int) and channels > number
    return replace(spec, shape=(BATCH, channels - number, *spec.shape[2:])) if is_enough else spec


def _as_long(specs: Specs, mismatch: re.Match[str]) -> Specs | None:
    """`specs` with ids that were as long as a text and are now as long as what the message names beside them."""
    sizes = {int(mismatch[1]), int(mismatch[2])}
    other = (sizes - {TEXT}).pop() if TEXT in sizes and len(sizes) > 1 else None
    ids = [spec for spec in specs if spec.shape == (BATCH, TEXT) and "encoder" not in spec.name]
    if other is None or not any(spec.dtype == "int64" and spec.high not in (None, 2) for spec in ids):
        return None
    return tuple(replace(spec, shape=(BATCH, other)) if spec in ids else spec for spec in specs)


def _field(model: Any, specs: Specs, key: str) -> InputSpec | None:
    """The key that a dictionary among the parameters lacks: a mark of each of the tokens that a mask has."""
    annotations = {name: str(each.annotation) for name, each in signature_of(model.forward).parameters.items()}
    owner = next((name for name, kind in annotations.items() if "dict" in kind and "kwargs" not in name), None)
    mask = next((spec for spec in specs if spec.name.endswith("mask")), None)
    if owner is None or mask is None or not key.isidentifier() or f"{owner}.{key}" in {each.name for each in specs}:
        return None
    return replace(mask, name=f"{owner}.{key}")


def _names(specs: Iterable[InputSpec]) -> set[str]:
    """The parameters of `forward` that inputs stand for."""
    return {spec.name.partition(".")[0].removesuffix("[]") for spec in specs}


def _statement(model: Any, error: Exception) -> str:
    """The statement of the model's own `forward` that the error went through."""
    code = inspect.unwrap(type(model).forward).__code__
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == code.co_filename and frame.name == code.co_name and frame.lineno is not None:
            lines = range(frame.lineno, (frame.end_lineno or frame.lineno) + 1)
            return " ".join(linecache.getline(frame.filename, number) for number in lines)
    return ""


def _required(parameters: Mapping[str, Any]) -> set[str]:
    return {name for name, each in parameters.items() if each.default is each.empty}


def _documented_alone(model: Any, parameters: Mapping[str, Any]) -> Iterator[Specs]:
    """What `forward` cannot do without, by what its docstring, its config and its code say."""
    needed = (name for name in parameters if name in _required(parameters))
    yield tuple(spec for name in needed for spec in _inputs(model, name))


def _as_documented(model: Any, spec: InputSpec) -> InputSpec:
    shape = documented_shape(model.forward, spec.name, _sizes(model))
    return spec if shape is None or spec.dtype == CONSTANT else replace(spec, shape=shape)


def _inputs(model: Any, name: str, shape: tuple[int | str, ...] = ()) -> Iterator[InputSpec]:
    """What stands for the parameter `name`, beside a latent of `shape`.

    By its name, the shape that the docstring says, a value of that name in the config, its annotation, or the layers
    that the code gives it to. Nothing where none of them says it.
    """
    parameters = signature_of(model.forward).parameters
    made = _made(model, parameters, shape) if shape or name in (*_TIMES, "encoder_hidden_states") else {}
    if (spec := made.get(name)) is not None:
        yield replace(spec, name=name)
    elif name.endswith("rope_pos"):
        yield from _positions(model, name)
    elif name.endswith("pixel_values"):  # a film in pixels beside the latents of one
        side = _first(model.config, ("image_size", "motion_encoder_size")) or PIXELS
        yield InputSpec(name, (BATCH, COLOURS, (_frames(model.config) - 1) * FRAMES_IN_ONE + 1, side, side))
    elif (known := documented_shape(model.forward, name, _sizes(model))) is not None:
        yield _of_shape(model, name, known)
    elif (value := model.config.get(name)) is not None:
        yield from _constants(name, value)
    elif (pair := _PAIRS.search(documented(model.forward, name))) is not None:
        width = _first(model.config, (*_TEXT_WIDTHS, "d_model", "hidden_size")) or 1
        yield InputSpec(f"{name}.0.0", (BATCH, TEXT, width))
        if pair[2].endswith("mask"):
            yield InputSpec(f"{name}.0.1", (BATCH, TEXT), "bool", 1, 2)
    elif "int" in str(parameters[name].annotation) and name.startswith("audio") and name.endswith("frames"):
        yield InputSpec.constant(name, TOKENS)
    elif name.endswith("_order_mask"):
        yield InputSpec(name, (BATCH,), "int64", counted=True)
    elif name.endswith(("_mask", "_drop")):
        yield InputSpec(name, (BATCH, TEXT), "bool", *((1, 2) if name.endswith("_mask") else ()))
    elif (numbers := _numbers_embedded(model.config, name)) is not None:
        yield InputSpec(name, (BATCH, numbers))
    elif name.startswith("pooled") and (width := _first(model.config, _POOLED_WIDTHS)) is not None:
        yield InputSpec(name, (BATCH, width))
    elif _GRID.search(str(parameters[name].annotation)):
        yield from _constants(f"{name}[].0", _grid(model))
    elif layers := takers_of_entries(model, name):
        for place, layer in enumerate(layers):
            yield from _taken(f"{name}.{place}", first_taker(layer))
    else:
        yield from _taken(name, taker(model, name))


def _of_shape(model: Any, name: str, shape: tuple[int | str, ...]) -> InputSpec:
    """An input of a documented shape: numbers of what, its name and the docstring say."""
    if name.endswith(("_indices", "_indexes")):  # of rows, or of what stands under the rest of the name
        of = documented_shape(model.forward, re.sub("_ind[ic]{1,2}es$", "", name), _sizes(model))
        rows = of[0] if of else _sizes(model).get("seq_len", 1)
        return InputSpec(name, shape, "int64", high=rows if isinstance(rows, int) else 1)
    if name.endswith(("_ids", "_id", "_tokens", "_tags")) and not isinstance(taker(model, name), nn.Linear):
        kinds = {int(number) for number in re.findall(r"`(\d)`", documented(model.forward, name))}
        rows = max(kinds, default=0) + 1 if name.endswith("_tags") else _first(model.config, ("vocab_size",)) or 2
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
    """What a layer takes of a text, or of what is as long as one."""
    if isinstance(layer, nn.Linear):
        is_pooled = "pooled" in name
        yield InputSpec(name, (BATCH, layer.in_features) if is_pooled else (BATCH, TEXT, layer.in_features))
    elif isinstance(layer, nn.Embedding):
        yield InputSpec(name, (BATCH, TEXT), "int64", high=layer.num_embeddings)


def _positions(model: Any, name: str) -> Iterator[InputSpec]:
    """Positions of a text, or of a film along each of its axes, in patches."""
    if name.startswith("text"):
        yield InputSpec(name, (TEXT,), "int64", counted=True)
        return
    height, width = _spatial(model.config, encoded=True)
    sizes = zip((_frames(model.config), height, width), _patch(model.config), strict=True)
    for axis, (size, patch) in enumerate(sizes):
        yield InputSpec(f"{name}.{axis}", (size // patch,), "int64", counted=True)


def _numbers_embedded(config: Any, name: str) -> int | None:
    """How many numbers `micro_conds` are, of which each is embedded by `micro_cond_encode_dim` sines."""
    of_each, of_all = config.get(f"{name.removesuffix('s')}_encode_dim"), config.get(f"{name.removesuffix('s')}_embed_dim")
    return of_all // of_each if of_each and of_all else None


def _patch(config: Any) -> tuple[int, int, int]:
    """Frames, height and width of a patch."""
    size, frames = config.get("patch_size"), config.get("patch_size_t")
    if isinstance(size, Sequence) and len(size) == 3:
        return size[0], size[1], size[2]
    side = size if type(size) is int else 1
    return (frames if type(frames) is int else 1), side, side


def _grid(model: Any) -> tuple[int, int, int]:
    """Frames, height and width of a picture in patches."""
    height, width = _spatial(model.config, encoded=True)
    _, *patch = _patch(model.config)
    return 1, height // patch[0], width // patch[1]


def _channels(model: Any) -> int | None:
    """Those of the latent: by the config, or else as the model has them."""
    own = getattr(model, "in_channels", None) if _first(model.config, _CHANNELS) is None else None
    return own if type(own) is int else _first(model.config, _CHANNELS)


def _sizes(model: Any) -> dict[str, int | str]:
    """The sizes that docstrings name."""
    config, parameters = model.config, signature_of(model.forward).parameters
    height, width = _spatial(config, encoded="sample" not in parameters or "timestep" in parameters)
    frames, channels, text = _frames(config), _channels(model), _first(config, _TEXT_WIDTHS)
    if channels is not None and config.get("visual_cond"):  # beside them what is given, and where
        channels = 2 * channels + 1
    if config.get("sampling_rate"):
        frames = SAMPLES
    patch, grid = _patch(config), _grid(model)
    rows = {"num_video_tokens": frames * height * width // math.prod(patch), "num_text_tokens": TEXT}
    rows["num_audio_tokens"] = TOKENS
    packed = {name for name in rows if re.search(rf"\b{name}\b", model.forward.__doc__ or "")}
    known: dict[str, int | str | None] = {
        **dict.fromkeys(("batch_size", "batch", "B"), BATCH),
        **dict.fromkeys(("num_frames", "frames", "duration", "T", "F", "num_samples"), frames),
        **dict.fromkeys(("num_channels", "channels", "channel", "in_channels", "C", "dim"), channels),
        "audio_channels": config.get("dec_out_channels"),
        **dict.fromkeys(("height", "H"), height),
        **dict.fromkeys(("width", "W"), width),
        **dict.fromkeys(("image_sequence_length", "image_seq_len"), height * width),
        **rows,
        "max_patches": math.prod(grid),
        **dict(zip(("pt", "ph", "pw"), patch, strict=True)),
        **dict.fromkeys(("sequence_length", "seq_len", "seq_length", "length", "tokens"), TOKENS),
        **({"seq_len": sum(rows[name] for name in packed)} if len(packed) == len(rows) else {}),
        **({"seq_length": config["targets_length"]} if config.get("targets_length") else {}),
        "num_timesteps": 2,
        **dict.fromkeys(("sequence_len", "text_sequence_length", "text_seq_len", "text_len", "L"), TEXT),
        **dict.fromkeys(("encoder_seq_len",), TEXT),
        **dict.fromkeys(("embed_dims", "feature_dim", "D_caption", "D"), text),
        **{name: value for name, value in config.items() if type(value) is int and value > 0},
        **{f"len_{name}": len(value) for name, value in config.items() if isinstance(value, Sequence)},
        **{f"prod_{name}": math.prod(value) for name, value in config.items() if _is_of_numbers(value)},
    }
    latent = next((name for name in _LATENT_NAMES if name in parameters), "")
    for text_of_size in documented_sizes(model.forward, latent) if channels is not None else ():
        # Where the channels of the latent are said to be a sum with C, C is what makes it right.
        if re.search(r"\bC\b", re.sub(r"(?<=\d)(?=[A-Za-z])", " ", text_of_size)) and text_of_size != "C":
            known["C"] = solved(text_of_size, channels or 0, "C") or known["C"]
    return {name: value for name, value in known.items() if value is not None}


def _is_of_numbers(value: object) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(type(each) is int for each in value)


def _layouts(model: Any, channels: int, parameters: Mapping[str, Any]) -> Iterator[tuple[int, ...]]:
    """Shapes of a latent: by the kind of the layer that its channels go into, then the others."""
    config = model.config
    height, width = _spatial(config, encoded="sample" not in parameters or "timestep" in parameters)
    frames = _frames(config)
    image, film, of_one = (channels, height, width), (channels, frames, height, width), (channels, 1, height, width)
    is_film = any(word in type(model).__name__ for word in ("3D", "Video", "Motion", "Temporal"))
    tokens = (frames * height * width if "num_frames" in parameters else height * width, channels)
    by_layer = {
        nn.Conv3d: (film, (frames, channels, height, width), of_one),
        nn.Conv2d: (image, (frames, channels, height, width), film, of_one),
        nn.Conv1d: ((channels, SAMPLES), (channels, height)),
        nn.Linear: (tokens, *((film,) if is_film else (of_one, film)), image),
    }
    entries = (layer for layer in model.modules() if _takes(layer, channels))
    entry = next((kind for layer in entries for kind in by_layer if isinstance(layer, kind)), nn.Linear)
    if entry is nn.Linear or not {"img_ids", "img_shapes"}.isdisjoint(parameters):
        yield from by_layer[nn.Linear]
    shapes = by_layer.get(entry, ())
    yield from sorted(shapes, key=len, reverse=True) if is_film else shapes


def _takes(layer: nn.Module, channels: int) -> bool:
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return layer.in_channels == channels
    return False


def _spatial(config: Any, *, encoded: bool) -> tuple[int, int]:
    if type(config.get("sample_height")) is int and type(config.get("sample_width")) is int:
        return config["sample_height"], config["sample_width"]
    size = config.get("sample_size")
    if isinstance(size, Sequence) and len(size) == 2:
        return size[0], size[1]
    default = LATENTS if encoded else PIXELS
    return (size, size) if type(size) is int and size > 1 else (default, default)


def _frames(config: Any) -> int:
    frames = config.get("num_frames") or config.get("sample_frames")
    if _is_of_numbers(config.get("chunk_partition")):
        return sum(config["chunk_partition"])
    if type(frames) is not int:
        return FRAMES
    ratio = config.get("temporal_compression_ratio")
    return (frames - 1) // ratio + 1 if type(ratio) is int else frames


def _first(config: Any, names: Sequence[str]) -> int | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, Sequence) and value and type(value[0]) is int:
            value = value[0]
        if type(value) is int and value > 0:
            return value
    return None


def _made(model: Any, parameters: Mapping[str, Any], shape: tuple[int | str, ...]) -> dict[str, InputSpec | None]:
    """What goes with a latent of `shape`, by name."""
    config = model.config
    length = config.get("max_text_seq_length") or (77 if "sample" in parameters else TEXT)
    width = _first(config, _TEXT_WIDTHS)
    pooled, labels = (
        _first(config, _POOLED_WIDTHS),
        config.get("num_embeds_ada_norm") or config.get("num_class_embeds"),
    )
    grid = shape[-2:] if len(shape) > 2 else (1, 1)
    axes = len(config.get("axes_dims_rope") or (0, 0, 0))
    control, second = config.get("vace_in_channels"), config.get("text_embed_2_dim")
    return {
        **dict.fromkeys(_TIMES, InputSpec("", (BATCH,), "int64", high=TIMES)),
        "control_hidden_states": InputSpec("", (BATCH, control, *shape[1:])) if control else None,
        "image_latents": InputSpec("", (BATCH, *shape)),
        **dict.fromkeys(
            ("encoder_hidden_states", "cap_feats"), InputSpec("", (BATCH, length, width)) if width else None
        ),
        "encoder_attention_mask": InputSpec("", (BATCH, length), "int64", low=1, high=2) if width else None,
        "pooled_projections": InputSpec("", (BATCH, pooled)) if pooled else None,
        "class_labels": InputSpec("", (BATCH,), "int64", high=labels) if labels else None,
        "guidance": InputSpec("", (BATCH,)) if config.get("guidance_embeds") else None,
        "img_ids": InputSpec("", (shape[0], axes)) if len(shape) == 2 else None,
        "txt_ids": InputSpec("", (length, axes)),
        "num_frames": InputSpec.constant("", _frames(config)) if len(shape) == 2 else None,
        "height": InputSpec.constant("", _spatial(config, encoded=True)[0]) if len(shape) == 2 else None,
        "width": InputSpec.constant("", _spatial(config, encoded=True)[1]) if len(shape) == 2 else None,
        **{
            name: InputSpec("", (BATCH, CLIP_TOKENS, _first(config, _IMAGE_WIDTHS) or CLIP_WIDTH))
            for name in ("image_embeds", "encoder_hidden_states_image")
        },
        "encoder_hidden_states_2": InputSpec("", (BATCH, length, second)) if second else None,
        "encoder_attention_mask_2": InputSpec("", (BATCH, length), "int64", low=1, high=2) if second else None,
        "image_embeddings": InputSpec("", (BATCH, 1, width)) if width else None,
        "encoder_hidden_states_mask": InputSpec("", (BATCH, length), "bool", low=1, high=2) if width else None,
        "mask": InputSpec("", (BATCH, length), "int64", low=1, high=2) if width else None,
        **{name: InputSpec("", (BATCH, 2)) for name in ("original_size", "target_size", "crop_coords")},
        "added_time_ids": _time_ids(config),
        "controlnet_cond": _condition(model, shape),
        "img_mask": _slots(model, length, shape),
        "conditioning_mask": InputSpec("", (BATCH, 1, *shape[1:])),
        "conditioning_scale": None,
        "padding_mask": InputSpec("", (1, 1, *grid)) if len(grid) == 2 else None,
        "global_hidden_states": _global(config),
    }


def _others(model: Any, parameters: Mapping[str, Any], shape: tuple[int | str, ...]) -> Iterator[InputSpec]:
    """What goes with a latent of `shape`, of those that the model needs or takes."""
    config, made, required = model.config, _made(model, parameters, shape), _required(parameters)
    optional = {
        *("timestep", "encoder_hidden_states", "encoder_attention_mask", "pooled_projections", "class_labels"),
        *("guidance", "img_ids", "txt_ids", "num_frames", "height", "width", "global_hidden_states"),
    }
    for name in parameters:
        spec = made.get(name) if name in required | optional else None
        if spec is not None:
            yield replace(spec, name=name)
    if "added_cond_kwargs" in parameters:
        yield from _added(config)
    if "img_shapes" in parameters:  # one image: frames, height and width of its latents
        sides = (1, *_spatial(config, encoded=True))
        yield from (InputSpec.constant(f"img_shapes.0.0.{place}", size) for place, size in enumerate(sides))


def _added(config: Any) -> Iterator[InputSpec]:
    """The second text encoder and the sizes of SDXL, the sizes of PixArt."""
    width, total = config.get("addition_time_embed_dim"), config.get("projection_class_embeddings_input_dim")
    if config.get("addition_embed_type") == "text_time" and width and total:
        yield InputSpec("added_cond_kwargs.text_embeds", (BATCH, total - 6 * width))
        yield InputSpec("added_cond_kwargs.time_ids", (BATCH, 6))
    if "use_additional_conditions" in config:
        yield InputSpec("added_cond_kwargs.resolution", (BATCH, 2))
        yield InputSpec("added_cond_kwargs.aspect_ratio", (BATCH, 1))


def _time_ids(config: Any) -> InputSpec | None:
    width, total = config.get("addition_time_embed_dim"), config.get("projection_class_embeddings_input_dim")
    return InputSpec("", (BATCH, total // width)) if width and total else None


def _condition(model: Any, shape: tuple[Any, ...]) -> InputSpec | None:
    """The picture that a ControlNet follows: larger than the latent by what its embedding shrinks it, or as that is."""
    channels = _first(model.config, ("conditioning_channels", "ctrl_conditioning_channels"))
    if not channels:
        return InputSpec("", (BATCH, *shape))
    layers = getattr(model, "controlnet_cond_embedding", nn.Identity()).modules()
    factor = math.prod(layer.stride[-1] for layer in layers if isinstance(layer, nn.Conv2d | nn.Conv3d))
    return InputSpec("", (BATCH, channels, *shape[1:-2], *(factor * size for size in shape[-2:])))


def _slots(model: Any, length: int, shape: tuple[Any, ...]) -> InputSpec | None:
    """A text and the slots of its picture behind it, each of which stands for `2x2` latents as the docstring says."""
    group = re.search(r"`(\d)x(\d)`", documented(model.forward, "img_mask"))
    if group is None or len(shape) != 2:
        return None
    slots = shape[0] // (int(group[1]) * int(group[2]))
    return InputSpec("", (BATCH, length + slots), "bool", 1, 2, runs=((0, length),))


def _global(config: Any) -> InputSpec | None:
    width = config.get("global_states_input_dim") or config.get("global_cond_dim")
    return InputSpec("", (BATCH, 1, width)) if width else None

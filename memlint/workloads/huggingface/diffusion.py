"""The inputs of diffusers' models, from their configs: latents, times, texts that are encoded already."""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from memlint.base.frames import line_of, text_of
from memlint.base.signatures import signature_of
from memlint.workloads.huggingface.documented import documented_shape
from memlint.workloads.spec import BATCH, CONSTANT, InputSpec

LATENTS = 64
"""Height and width of latents where the config does not say: an image of 512 through a VAE that shrinks it 8 times."""
PIXELS = 256
"""Height and width of what an autoencoder gets, where its config does not say."""
TEXT, TOKENS = 256, 1024
"""Tokens of a text, and of what is neither a text nor an image."""
FRAMES = 9
"""Of a film: autoencoders that look at the past alone take one frame and multiples of 4 or 8."""
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
)
_LATENT_NAMES = ("sample", "hidden_states", "x")
_TIMES = ("timestep", "timesteps", "t", "timestep_r", "r_timestep", "timestep_ratio", "fps")
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
    channels = _first(model.config, _CHANNELS)
    if latent is None or channels is None:
        yield from _documented_alone(model, parameters)
        return
    said = documented_shape(model.forward, latent, _sizes(model.config, parameters))
    layouts = _layouts(model, channels, parameters)
    for shape in dict.fromkeys((*([said[1:]] if said is not None else ()), *layouts)):
        spec = InputSpec(latent, (BATCH, *shape))
        others = list(_others(model.config, parameters, shape))
        yield (spec, *others)
        text = [each for each in others if not each.name.startswith("encoder_attention_mask")]
        if len(text) < len(others):
            yield (spec, *text)
        documented = [_as_documented(model, each) for each in others]
        known = {each.name for each in documented} | {latent}
        needed = (_input(model, name, shape) for name in parameters if name in _required(parameters) - known)
        documented += [each for each in needed if each is not None]
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
        sizes = _sizes(model.config, parameters)
        shape = tuple(sizes.get(name, 0) for name in re.findall(r"\w+", match[1]))
        names = (match[2], *(_LATENT_NAMES if match[2] == "x" else ()))
        spec = next((spec for name in names for spec in specs if spec.name == name), None)
        if spec is not None and 0 not in shape:
            alike = times if spec in times else [spec]
            return tuple(replace(each, shape=shape) if each in alike else each for each in specs)
    words = {*re.findall(r"\w+", f"{_statement(model, error)} {text}")} - {each.name for each in specs}
    shape = specs[0].shape[1:] if specs else ()
    more = (_input(model, name, shape) for name in parameters if name in words)
    return (*specs, *(spec for spec in more if spec is not None))


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
    """What `forward` cannot do without and the docstring says the shape of."""
    specs = [_input(model, name) for name in parameters if name in _required(parameters)]
    yield tuple(spec for spec in specs if spec is not None)


def _as_documented(model: Any, spec: InputSpec) -> InputSpec:
    shape = documented_shape(model.forward, spec.name, _sizes(model.config, signature_of(model.forward).parameters))
    return spec if shape is None or spec.dtype == CONSTANT else replace(spec, shape=shape)


def _input(model: Any, name: str, shape: tuple[int | str, ...] = ()) -> InputSpec | None:
    """An input by its name, or of the shape that the docstring says."""
    parameters = signature_of(model.forward).parameters
    if (shape or name in _TIMES) and (spec := _made(model.config, parameters, shape).get(name)) is not None:
        return replace(spec, name=name)
    known = documented_shape(model.forward, name, _sizes(model.config, parameters))
    if known is None:
        return None
    if name.endswith(("_ids", "_id", "_tokens")):
        return InputSpec(name, known, "int64", high=_first(model.config, ("vocab_size",)) or 2)
    if name.endswith("mask"):
        return InputSpec(name, known, "bool", 1, 2)
    return InputSpec(name, known, "float32", *((0.0, 1.0) if name.startswith("time") else (None, None)))


def _sizes(config: Any, parameters: Mapping[str, Any]) -> dict[str, int | str]:
    """The sizes that docstrings name."""
    height, width = _spatial(config, encoded="sample" not in parameters or "timestep" in parameters)
    frames, channels, text = _frames(config), _first(config, _CHANNELS), _first(config, _TEXT_WIDTHS)
    if channels is not None and config.get("visual_cond"):  # beside them what is given, and where
        channels = 2 * channels + 1
    if config.get("sampling_rate"):
        frames = SAMPLES
    known: dict[str, int | str | None] = {
        **dict.fromkeys(("batch_size", "batch", "B"), BATCH),
        **dict.fromkeys(("num_frames", "frames", "duration", "T", "F", "num_samples"), frames),
        **dict.fromkeys(("num_channels", "channels", "channel", "in_channels", "C"), channels),
        "audio_channels": config.get("dec_out_channels"),
        **dict.fromkeys(("height", "H"), height),
        **dict.fromkeys(("width", "W"), width),
        **dict.fromkeys(("image_sequence_length", "image_seq_len"), height * width),
        **dict.fromkeys(("num_video_tokens",), frames * height * width),
        **dict.fromkeys(("sequence_length", "seq_len", "seq_length", "length", "num_audio_tokens"), TOKENS),
        **dict.fromkeys(("sequence_len", "text_sequence_length", "text_seq_len", "text_len", "L"), TEXT),
        **dict.fromkeys(("encoder_seq_len",), TEXT),
        **dict.fromkeys(("embed_dims", "feature_dim", "D_caption", "D"), text),
        **{name: value for name, value in config.items() if type(value) is int and value > 0},
        **{f"len_{name}": len(value) for name, value in config.items() if isinstance(value, Sequence)},
    }
    return {name: value for name, value in known.items() if value is not None}


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


def _made(config: Any, parameters: Mapping[str, Any], shape: tuple[int | str, ...]) -> dict[str, InputSpec | None]:
    """What goes with a latent of `shape`, by name."""
    length = config.get("max_text_seq_length") or (77 if "sample" in parameters else TEXT)
    width = _first(config, _TEXT_WIDTHS)
    pooled, labels = (
        config.get("pooled_projection_dim") or config.get("in_text_dim2"),
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
        "controlnet_cond": _condition(config, shape),
        "conditioning_scale": None,
        "padding_mask": InputSpec("", (1, 1, *grid)) if len(grid) == 2 else None,
        "global_hidden_states": _global(config),
    }


def _others(config: Any, parameters: Mapping[str, Any], shape: tuple[int | str, ...]) -> Iterator[InputSpec]:
    """What goes with a latent of `shape`, of those that the model needs or takes."""
    made, required = _made(config, parameters, shape), _required(parameters)
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


def _condition(config: Any, shape: tuple[Any, ...]) -> InputSpec | None:
    """The picture that a ControlNet follows: eight times as large as the latent, or encoded as that is."""
    channels = config.get("conditioning_channels")
    if not channels:
        return InputSpec("", (BATCH, *shape))
    return InputSpec("", (BATCH, channels, *shape[1:-2], *(8 * size for size in shape[-2:])))


def _global(config: Any) -> InputSpec | None:
    width = config.get("global_states_input_dim") or config.get("global_cond_dim")
    return InputSpec("", (BATCH, 1, width)) if width else None

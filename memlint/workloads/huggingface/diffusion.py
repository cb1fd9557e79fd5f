"""The inputs of diffusers' models, from their configs: latents, times, texts that are encoded already."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from memlint.base.signatures import signature_of
from memlint.workloads.spec import BATCH, InputSpec

LATENTS = 64
"""Height and width of latents where the config does not say: an image of 512 through a VAE that shrinks it 8 times."""
PIXELS = 256
"""Height and width of what an autoencoder gets, where its config does not say."""
FRAMES = 9
"""Of a film: autoencoders that look at the past alone take one frame and multiples of 4 or 8."""
TIMES = 1000
"""Steps of the noise schedule."""
SAMPLES = 65_536
"""Of a recording; a power of two, which codecs halve many times."""
_TEXT_WIDTHS = (
    *("encoder_hid_dim", "caption_channels", "joint_attention_dim", "text_embed_dim", "text_dim", "cond_token_dim"),
    *("context_in_dim", "cap_feat_dim", "crossattn_proj_in_channels", "cross_attention_input_dim", "condition_dim"),
    *("cross_attention_dim",),
)
_CHANNELS = ("in_channels", "input_channels", "io_channels", "num_channels", "audio_channels", "in_dim")
_LATENT_NAMES = ("sample", "hidden_states", "x")

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
        return
    for shape in _layouts(model, channels, parameters):
        spec = InputSpec(latent, (BATCH, *shape))
        others = list(_others(model.config, parameters, shape))
        yield (spec, *others)
        text = [each for each in others if not each.name.startswith("encoder_attention_mask")]
        if len(text) < len(others):
            yield (spec, *text)


def _layouts(model: Any, channels: int, parameters: Mapping[str, Any]) -> Iterator[tuple[int, ...]]:
    """Shapes of a latent: by the kind of the layer that its channels go into, then the others."""
    config = model.config
    height, width = _spatial(config, encoded="sample" not in parameters or "timestep" in parameters)
    frames = _frames(config)
    image, film = (channels, height, width), (channels, frames, height, width)
    tokens = (frames * height * width if "num_frames" in parameters else height * width, channels)
    by_layer = {
        nn.Conv3d: (film, (frames, channels, height, width)),
        nn.Conv2d: (image, (frames, channels, height, width), film),
        nn.Conv1d: ((channels, SAMPLES), (channels, height)),
        nn.Linear: (tokens, film, image),
    }
    entry = next((type(layer) for layer in model.modules() if _takes(layer, channels)), nn.Linear)
    if entry is nn.Linear or not {"img_ids", "img_shapes"}.isdisjoint(parameters):
        yield from by_layer[nn.Linear]
    is_film = any(word in type(model).__name__ for word in ("3D", "Video", "Motion", "Temporal"))
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


def _others(config: Any, parameters: Mapping[str, Any], shape: tuple[int, ...]) -> Iterator[InputSpec]:
    """What goes with a latent of `shape`."""
    length = config.get("max_text_seq_length") or (77 if "sample" in parameters else 256)
    width = _first(config, _TEXT_WIDTHS)
    pooled, labels = (
        config.get("pooled_projection_dim"),
        config.get("num_embeds_ada_norm") or config.get("num_class_embeds"),
    )
    grid = shape[-2:] if len(shape) > 2 else (1, 1)
    axes = len(config.get("axes_dims_rope") or (0, 0, 0))
    times = InputSpec("", (BATCH,), "int64", high=TIMES)
    made: dict[str, InputSpec | None] = {
        "timestep": times,
        "timesteps": times,
        "t": times,
        "timestep_r": times,
        "r_timestep": times,
        "encoder_hidden_states": InputSpec("", (BATCH, length, width)) if width else None,
        "encoder_attention_mask": InputSpec("", (BATCH, length), "int64", low=1, high=2) if width else None,
        "pooled_projections": InputSpec("", (BATCH, pooled)) if pooled else None,
        "class_labels": InputSpec("", (BATCH,), "int64", high=labels) if labels else None,
        "guidance": InputSpec("", (BATCH,)) if config.get("guidance_embeds") else None,
        "img_ids": InputSpec("", (shape[0], axes)) if len(shape) == 2 else None,
        "txt_ids": InputSpec("", (length, axes)),
        "num_frames": InputSpec.constant("", _frames(config)) if len(shape) == 2 else None,
        "height": InputSpec.constant("", _spatial(config, encoded=True)[0]) if len(shape) == 2 else None,
        "width": InputSpec.constant("", _spatial(config, encoded=True)[1]) if len(shape) == 2 else None,
        **{name: InputSpec("", (BATCH, 2)) for name in ("original_size", "target_size", "crop_coords")},
        "added_time_ids": _time_ids(config),
        "controlnet_cond": _condition(config, shape),
        "conditioning_scale": None,
        "padding_mask": InputSpec("", (1, 1, *grid)) if len(grid) == 2 else None,
        "global_hidden_states": _global(config),
    }
    required = {name for name, each in parameters.items() if each.default is each.empty}
    optional = {
        *("timestep", "encoder_hidden_states", "encoder_attention_mask", "pooled_projections", "class_labels"),
        *("guidance", "img_ids", "txt_ids", "num_frames", "height", "width", "global_hidden_states"),
    }
    for name in parameters:
        spec = made.get(name) if name in required | optional else None
        if spec is not None:
            yield InputSpec(name, spec.shape, spec.dtype, spec.low, spec.high)
    if "added_cond_kwargs" in parameters:
        yield from _added(config)


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


def _condition(config: Any, shape: tuple[int, ...]) -> InputSpec | None:
    """The picture that a ControlNet follows: eight times as large as the latent, or encoded as that is."""
    channels = config.get("conditioning_channels")
    if not channels:
        return InputSpec("", (BATCH, *shape))
    return InputSpec("", (BATCH, channels, *shape[1:-2], *(8 * size for size in shape[-2:])))


def _global(config: Any) -> InputSpec | None:
    width = config.get("global_states_input_dim") or config.get("global_cond_dim")
    return InputSpec("", (BATCH, 1, width)) if width else None

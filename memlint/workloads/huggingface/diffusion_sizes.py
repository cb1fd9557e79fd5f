"""Sizes for diffusers' models: of latents, videos and texts, from their configs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from memlint.base.signatures import signature_of
from memlint.targets.workload import BATCH
from memlint.workloads.huggingface.documented import documented_sizes, solved

IMAGE, LATENTS = 512, 64
"""Height and width of an image, and of its latents if the config does not say how much a VAE shrinks it: 8 times."""
PIXELS = 256
"""Height and width of an autoencoder's image if its config does not say."""
TEXT, TOKENS = 256, 1024
"""Tokens of a text, and of an input that is neither text nor image."""
FRAMES = 9
"""Frames of a video: causal autoencoders accept one frame and multiples of 4 or 8."""
FRAMES_IN_ONE, COLOURS = 4, 3
"""Frames of a video per latent, as in the autoencoders of Wan, and colour channels of a pixel."""
SAMPLES = 65_536
"""Samples of a recording; a power of two, which codecs halve many times."""
TEXT_WIDTHS = (
    *("encoder_hid_dim", "caption_channels", "joint_attention_dim", "text_embed_dim", "text_dim", "cond_token_dim"),
    *("context_in_dim", "cap_feat_dim", "crossattn_proj_in_channels", "cross_attention_input_dim", "condition_dim"),
    *("encoder_hidden_states_channels", "text_hidden_dim", "llm_features_dim", "in_text_dim", "cap_feat_dim"),
    *("cross_attention_dim", "encoder_hidden_size"),
)
_CHANNELS = (
    "in_channels",
    "in_visual_dim",
    "input_channels",
    "io_channels",
    "num_channels",
    "audio_channels",
    "in_dim",
)
LATENT_NAMES = ("sample", "hidden_states", "x", "z")


def sizes_of(model: Any) -> dict[str, int | str]:
    """Return the sizes that docstrings name."""
    config, parameters = model.config, signature_of(model.forward).parameters
    height, width = spatial(config, encoded="sample" not in parameters or "timestep" in parameters)
    frames, channels, text = frames_of(config), channels_of(model), first(config, TEXT_WIDTHS)
    if channels is not None and config.get("visual_cond"):  # beside them the given image, and where
        channels = 2 * channels + 1
    if config.get("sampling_rate"):
        frames = SAMPLES
    patch, grid, rows = patch_of(config), grid_of(model), rows_of(model)
    known: dict[str, int | str | None] = {
        **dict.fromkeys(("batch_size", "batch", "B"), BATCH),
        **dict.fromkeys(("num_frames", "frames", "duration", "T", "F"), frames),
        "num_samples": SAMPLES,
        **dict.fromkeys(("num_channels", "channels", "channel", "in_channels", "C", "dim"), channels),
        "audio_channels": config.get("dec_out_channels"),
        **dict.fromkeys(("height", "H"), height),
        **dict.fromkeys(("width", "W"), width),
        **dict.fromkeys(("image_sequence_length", "image_seq_len"), height * width),
        **{f"num_{stream}_tokens": number for stream, number in rows.items()},
        "max_patches": math.prod(grid),
        **dict(zip(("pt", "ph", "pw"), patch, strict=True)),
        **dict.fromkeys(("sequence_length", "seq_len", "seq_length", "length", "tokens"), TOKENS),
        **({"seq_len": sum(rows.values())} if "num_text_tokens" in (model.forward.__doc__ or "") else {}),
        **({"seq_length": config["targets_length"]} if config.get("targets_length") else {}),
        "num_timesteps": 2,
        **dict.fromkeys(("sequence_len", "text_sequence_length", "text_seq_len", "text_len", "L"), TEXT),
        **dict.fromkeys(("encoder_seq_len",), TEXT),
        **dict.fromkeys(("embed_dims", "feature_dim", "D_caption", "D"), text),
        **{name: value for name, value in config.items() if type(value) is int and value > 0},
        **{f"len_{name}": len(value) for name, value in config.items() if isinstance(value, Sequence)},
        **{f"prod_{name}": math.prod(value) for name, value in config.items() if is_of_numbers(value)},
    }
    latent = next((name for name in LATENT_NAMES if name in parameters), "")
    for text_of_size in documented_sizes(model.forward, latent) if channels is not None else ():
        # If the docstring calls the latent's channels a sum with C, C is the value that makes the sum right.
        if re.search(r"\bC\b", re.sub(r"(?<=\d)(?=[A-Za-z])", " ", text_of_size)) and text_of_size != "C":
            known["C"] = solved(text_of_size, channels or 0, "C") or known["C"]
    return {name: value for name, value in known.items() if value is not None}


def rows_of(model: Any) -> dict[str, int]:
    """Return the rows of each stream, in the order in which a packing model concatenates them."""
    height, width = spatial(model.config, encoded=True)
    patches = frames_of(model.config) * height * width // math.prod(patch_of(model.config))
    return {"text": TEXT, "audio": TOKENS, "video": patches}


def is_of_numbers(value: object) -> bool:
    """Return True for a list of whole numbers."""
    return isinstance(value, Sequence) and bool(value) and all(type(each) is int for each in value)


def patch_of(config: Any) -> tuple[int, int, int]:
    """Return frames, height and width of a patch."""
    size, frames = config.get("patch_size"), config.get("patch_size_t")
    if isinstance(size, Sequence) and len(size) == 3:
        return size[0], size[1], size[2]
    side = size if type(size) is int else 1
    return (frames if type(frames) is int else 1), side, side


def grid_of(model: Any) -> tuple[int, int, int]:
    """Return frames, height and width of a picture in patches."""
    height, width = spatial(model.config, encoded=True)
    _, *patch = patch_of(model.config)
    return 1, height // patch[0], width // patch[1]


def channels_of(model: Any) -> int | None:
    """Return the channels of the latent: by the config, or else from the model's layers."""
    if (known := first(model.config, _CHANNELS)) is not None:
        return known
    if "z" in signature_of(model.forward).parameters:  # only latents, which it decodes
        return first(model.config, ("latent_channels",))
    own = getattr(model, "in_channels", None)
    return own if type(own) is int else None


def spatial(config: Any, *, encoded: bool) -> tuple[int, int]:
    """Return height and width of the latents if `encoded`, else of the image."""
    if type(config.get("sample_height")) is int and type(config.get("sample_width")) is int:
        return config["sample_height"], config["sample_width"]
    size = config.get("sample_size")
    if isinstance(size, Sequence) and len(size) == 2:
        return size[0], size[1]
    factors = config.get("vae_scale_factors")
    ratio = config.get("spatial_compression_ratio") or (factors[-1] if is_of_numbers(factors) else None)
    latents = IMAGE // ratio if type(ratio) is int and ratio > 0 else LATENTS
    default = latents if encoded else PIXELS
    return (size, size) if type(size) is int and size > 1 else (default, default)


def frames_of(config: Any) -> int:
    """Return the number of frames in the latents of a video."""
    frames = config.get("num_frames") or config.get("sample_frames")
    if is_of_numbers(config.get("chunk_partition")):
        return sum(config["chunk_partition"])
    if type(frames) is not int:
        return FRAMES
    ratio = config.get("temporal_compression_ratio")
    return (frames - 1) // ratio + 1 if type(ratio) is int else frames


def first(config: Any, names: Sequence[str]) -> int | None:
    """Return the first of the names for which the config has a size, or a list that begins with one."""
    for name in names:
        value = config.get(name)
        if isinstance(value, Sequence) and value and type(value[0]) is int:
            value = value[0]
        if type(value) is int and value > 0:
            return value
    return None

"""Outputs of a model's own processor for a blank image, a blank video or a silent recording.

transformers knows for each type of model which class prepares its images, videos and recordings. Such a class needs no
file: it uses its defaults, overridden by config values under the same or a similar name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

from memlint.targets.workload import BATCH, InputSpec
from memlint.workloads.config_parts import parts
from memlint.workloads.huggingface.configs import image_size, number
from memlint.workloads.model_sizes import DEFAULT_IMAGE_SIZE

SECONDS = 10
"""Length of a recording in seconds."""
FRAMES = 8
"""Frames of a video, for models whose config does not say how many."""
LEAST_IMAGE = 448
"""Height and width of an image for models that accept any size."""
_ALIASES = {
    "merge_size": ("spatial_merge_size",),
    "max_image_tiles": ("max_num_tiles",),
    "feature_size": ("num_mel_bins", "input_feat_per_channel", "feature_size", "n_mels"),
    "num_mel_bins": ("input_feat_per_channel",),
    "max_length": ("max_length",),
}
"""Settings of processors, and the configs' names for them."""
_KEPT = frozenset({"do_resize", "return_attention_mask", "padding_side", "padding_value", "model_input_names"})
_MOST_RUNS = 64
_MOST_PARTS = 4


@dataclass(frozen=True, slots=True)
class Prepared:
    """Inputs made by a processor."""

    specs: tuple[InputSpec, ...]
    text: str
    """Description of the data, and the class that processed it."""


def images(config: Any, *, sized: bool = True) -> Prepared | None:
    """Return inputs for one image per text. None if transformers has no processor for the config, or it fails.

    The image is resized to the config's size, or without `sized` to the processor's own.
    """
    height, width = image_size(config) or (LEAST_IMAGE, LEAST_IMAGE)
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    for kind in _classes(config, "image_processing_auto", "IMAGE_PROCESSOR_MAPPING_NAMES", "ImageProcessor"):
        processor = _processor(kind, config, _sizes(kind, config) if sized else {})
        for item in ([picture], picture, [picture, picture]):  # the last for models that match one image with another
            if specs := _prepared(processor, item):
                return Prepared(specs, f"an image of {height}x{width} through {type(processor).__name__}")
    return None


def films(config: Any) -> Prepared | None:
    """Return inputs as `images` does, for one video per text."""
    height, width = image_size(config) or (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)
    frames = number(config, "num_frames") or FRAMES
    video = np.zeros((frames, height, width, 3), dtype=np.uint8)
    for kind in _classes(config, "video_processing_auto", "VIDEO_PROCESSOR_MAPPING_NAMES", "VideoProcessor"):
        processor = _processor(kind, config, {**_sizes(kind, config), "do_sample_frames": False})
        if specs := _prepared(processor, video):
            return Prepared(specs, f"a video of {frames} frames of {height}x{width} through {type(processor).__name__}")
    return None


def recordings(config: Any, *, masked: bool = False) -> Prepared | None:
    """Return inputs as `images` does, for one recording per item; `masked` adds the mask of its valid part."""
    for kind in _classes(config, "feature_extraction_auto", "FEATURE_EXTRACTOR_MAPPING_NAMES", "FeatureExtractor"):
        # A model without fused crops gets one crop of the sound.
        fused = all(getattr(part, "enable_fusion", None) is not False for part in parts(config))
        processor = _processor(kind, config, {} if fused else {"truncation": "rand_trunc"})
        rate = getattr(processor, "sampling_rate", None)
        if rate is None:
            continue
        options = {"sampling_rate": rate, **({"return_attention_mask": True} if masked else {})}
        if specs := _prepared(processor, np.zeros(SECONDS * rate, dtype=np.float32), **options):
            return Prepared(specs, f"a recording of {SECONDS} s at {rate} Hz through {type(processor).__name__}")
    return None


def _classes(config: Any, module: str, table: str, ending: str) -> Iterator[Any]:
    """Yield the classes in a table of transformers for a type of model, for its parts' types, or for their packages.

    If there is none, the model's whole processor has a name like the one it uses; and a model that merges neighbouring
    patches of images and of frames uses Qwen2-VL's.
    """
    import transformers  # noqa: PLC0415 - slow, and only needed here

    mapping = getattr(import_module(f"transformers.models.auto.{module}"), table)
    wholes = getattr(import_module("transformers.models.auto.processing_auto"), "PROCESSOR_MAPPING_NAMES", {})
    some = list(itertools.islice(parts(config), _MOST_PARTS))
    packages = [type(part).__module__.split(".")[-2] for part in some]
    types = [getattr(part, "model_type", "") for part in some]
    whole = wholes.get(types[0]) or ""
    patches = ("qwen2_vl",) if number(config, "temporal_patch_size") and number(config, "spatial_merge_size") else ()
    module_of = import_module("transformers.models.auto.configuration_auto").model_type_to_module_name
    own = (types[0], *(name for name in mapping if module_of(name) == packages[0]), whole)
    for name in dict.fromkeys((*own, *types[1:], *packages[1:], *patches)):
        entry = mapping.get(name) or (name.replace("Processor", ending) if name == whole else None)
        names = entry.values() if isinstance(entry, Mapping) else entry if isinstance(entry, tuple) else (entry,)
        # A class that needs Pillow alone is available more often than one that needs torchvision.
        for each in sorted(filter(None, names), key=lambda each: not each.endswith("Pil")):
            with suppress(Exception):  # a library that it needs is missing
                yield getattr(transformers, each)


def _processor(kind: Any, config: Any, settings: Mapping[str, Any]) -> Any:
    """Create a processor with its defaults, overridden by the config; one without time gets patches of 1 frame."""
    with suppress(Exception):
        plain = kind()
        better = {}
        for name, value in vars(plain).items():
            for own in (name, *_ALIASES.get(name, ())):
                known = next((each for part in parts(config) if (each := getattr(part, own, None)) is not None), None)
                if name not in _KEPT and known is not None and isinstance(known, type(value)) and known != value:
                    better[name] = known
        if not any("temporal" in name for part in parts(config) for name in vars(part)):
            better |= {name: 1 for name in ("temporal_patch_size",) if hasattr(plain, name)}
        for chosen in ({**better, **settings}, settings, better):
            with suppress(Exception):
                return kind(**chosen)
        return plain
    return None


def _sizes(kind: Any, config: Any) -> dict[str, Any]:
    """Return the image size in the terms of a processor's class."""
    fixed = image_size(config)
    if fixed is None:
        return {}
    sizes = {}
    for name in ("size", "crop_size", "max_image_size"):
        default = getattr(kind, name, None)
        if isinstance(default, Mapping) and default.keys() == {"height", "width"}:
            sizes[name] = {"height": fixed[0], "width": fixed[1]}
        elif isinstance(default, Mapping) and default.keys() == {"shortest_edge"}:
            sizes[name] = {"shortest_edge": min(fixed)}
        elif name == "max_image_size" and isinstance(default, Mapping) and default.keys() == {"longest_edge"}:
            sizes[name] = {"longest_edge": max(fixed)}
    return sizes


def _prepared(processor: Any, item: object, **options: object) -> tuple[InputSpec, ...]:
    """Return specs of the outputs: a size that doubles for two items follows the batch. Empty if it raises."""
    with suppress(Exception):
        one, two = (processor([item] * number, return_tensors="pt", **options) for number in (1, 2))
        specs = [_spec(name, one[name], two[name]) for name in one if isinstance(one[name], torch.Tensor)]
        return tuple(spec for spec in specs if spec is not None)
    return ()


def _spec(name: str, one: torch.Tensor, two: Any) -> InputSpec | None:
    if not isinstance(two, torch.Tensor) or one.dim() != two.dim() or one.dim() == 0:
        return None
    shape: list[int | str] = []
    for least, most in zip(one.shape, two.shape, strict=True):
        if most not in (least, 2 * least):
            return None
        shape.append(least if least == most else BATCH if least == 1 else f"{least}*{BATCH}")
    if one.is_floating_point():
        return InputSpec(name, tuple(shape))
    dtype = str(one.dtype).removeprefix("torch.")
    low, high = int(one.min()), int(one.max()) + 1
    items = {tuple(item.flatten().tolist()) for item in one}
    if low == high - 1:
        return InputSpec(name, tuple(shape), "int64" if dtype == "bool" else dtype, low=low, high=high)
    runs = tuple((value, len(list(group))) for value, group in itertools.groupby(next(iter(items))))
    if len(items) > 1 or len(runs) > _MOST_RUNS:
        return InputSpec(name, tuple(shape), dtype, low=low, high=high)
    return InputSpec(name, tuple(shape), dtype, runs=runs)

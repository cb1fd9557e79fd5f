"""Transforms of MONAI that are gone since version 1.3, by what stands for them now."""

import functools
import importlib
from typing import Any

_transforms: Any = importlib.import_module("monai.transforms")


def _in_place_of(name: str, channel_dim: int | str) -> tuple[Any, Any]:
    """Return what stands for a transform of an image, and for that of entries of a dictionary."""
    kinds = (getattr(_transforms, name), getattr(_transforms, f"{name}d"))
    images, entries = (functools.partial(kind, channel_dim=channel_dim) for kind in kinds)
    return images, entries


AddChannel, AddChanneld = _in_place_of("EnsureChannelFirst", "no_channel")
AsChannelFirst, AsChannelFirstd = _in_place_of("EnsureChannelFirst", -1)

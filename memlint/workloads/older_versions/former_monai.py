"""Transforms of MONAI that are gone since version 1.3, by what stands for them now."""

import functools
import importlib
from typing import Any

_transforms: Any = importlib.import_module("monai.transforms")


AddChannel = functools.partial(_transforms.EnsureChannelFirst, channel_dim="no_channel")
AddChanneld = functools.partial(_transforms.EnsureChannelFirstd, channel_dim="no_channel")
AsChannelFirst = functools.partial(_transforms.EnsureChannelFirst, channel_dim=-1)
AsChannelFirstd = functools.partial(_transforms.EnsureChannelFirstd, channel_dim=-1)

"""The version of PyTorch whose CUDA kernels are simulated."""

from __future__ import annotations

import torch

_major, _minor = torch.__version__.split(".")[:2]
_RUNNING = int(_major), int(_minor)


def torch_version() -> tuple[int, int]:
    """Major and minor version of the PyTorch that runs."""
    return _RUNNING

"""The version of PyTorch whose CUDA kernels are simulated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_major, _minor = torch.__version__.split(".")[:2]
_versions = [(int(_major), int(_minor))]


def torch_version() -> tuple[int, int]:
    """Major and minor version of the PyTorch simulated: the running one, or that of `simulated_torch`."""
    return _versions[-1]


@contextmanager
def simulated_torch(version: tuple[int, int]) -> Iterator[None]:
    """Inside, hidden memory and workspaces are those of this major and minor version of PyTorch.

    Which operators run, and what they save for backward, stays as in the running version.
    """
    _versions.append(version)
    try:
        yield
    finally:
        _versions.pop()

"""The version of PyTorch whose CUDA kernels are simulated, and the version of its cuDNN."""

from collections.abc import Mapping

import torch

from memlint.accelerator import state
from memlint.memory.devices import Device

_major, _minor = torch.__version__.split(".")[:2]
_RUNNING = int(_major), int(_minor)


CHECKED = (2, 10), (2, 13)
"""First and last version of PyTorch for which every table of hidden memory was read or measured."""


def doubts_of_version() -> list[str]:
    """Return the assumptions to report if PyTorch is newer than all checked versions."""
    if not CHECKED[1] < _RUNNING:
        return []
    first, last, running = (".".join(map(str, version)) for version in (*CHECKED, _RUNNING))
    return [f"torch {running} is newer than those checked, {first} to {last}: its kernels may take other memory"]


def torch_version() -> tuple[int, int]:
    """Return major and minor version of the PyTorch on the simulated device, else of the one that runs.

    It decides the memory that kernels and libraries take for themselves, the casts of autocast, and the kernels of
    `rms_norm` and `einsum`. All other operators, and the tensors they save for backward, are those of the PyTorch that
    runs.
    """
    device = getattr(state.current, "device", None)
    return getattr(device, "torch", None) or _RUNNING


def takes_oldest_block_first(device: Device) -> bool:
    """Return True if the allocator there takes free blocks of one size by age: from torch 2.13 on.

    Source: pytorch/pytorch#183591; benchmarks/allocator.py runs the binaries of 2.11, 2.13 and 2.14.
    """
    return (device.torch or _RUNNING) >= (2, 13)


_CUDNN: Mapping[tuple[int, int], tuple[int, ...]] = {
    (2, 1): (8902,),
    (2, 4): (90100,),
    (2, 6): (90100, 90501),
    (2, 7): (90501, 90701, 90100),
    (2, 8): (91002,),
    (2, 9): (91002, 91300),
    (2, 10): (91002, 91501),
    (2, 11): (91900,),
    (2, 12): (92000,),
}
"""`CUDNN_VERSION` of PyTorch's wheels for Linux on x86-64, from each version of PyTorch on.

The first is that of PyPI's wheel, as its metadata require it (nvidia-cudnn-cu12 or -cu13 of torch 2.1.2 to 2.13.0). The
others are those of download.pytorch.org for other versions of CUDA, where they are known to differ: 9.5.1 of 2.6 with
CUDA 12.6, 9.7.1 and 9.1.0 of 2.7 with 12.8 and 11.8 (PyTorch's RELEASE.md), 9.13.0 of 2.9 and 9.15.1 of 2.10 with CUDA
13.0 (pytorch pull requests 162268 and 171189).
"""


def cudnn_versions() -> tuple[int, ...]:
    """Return each `CUDNN_VERSION` that the simulated PyTorch may have: that of PyPI's wheel first, then the others."""
    version = max((known for known in _CUDNN if known <= torch_version()), default=min(_CUDNN))
    return _CUDNN[version]


def cudnn_text(version: int) -> str:
    """Format a `CUDNN_VERSION` as people write it."""
    unit = 10_000 if version >= 90_000 else 1000
    return f"{version // unit}.{version % unit // 100}.{version % 100}"

"""Indices that are known and lie outside of what they index fail, as they do on a GPU."""

from __future__ import annotations

from typing import Any

import torch

from memlint.accelerator.values import content


def refuse_out_of_range(packet: str, args: tuple[Any, ...]) -> None:
    """Raise IndexError where a kernel that reads at an index with these arguments would read what is not there.

    A GPU stops with a device-side assertion, which names neither line nor number.
    """
    tensor, *others = args
    if packet == "index":
        for dim, index in enumerate(others[0]):
            # A mask stands for as many dimensions as it has: the indices behind it are not held against any.
            if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
                return
            _refuse(tensor, dim, index, lowest=-tensor.shape[dim])
    elif len(others) > 1 and tensor.dim():
        _refuse(tensor, others[0], others[1], lowest=0)


def _refuse(tensor: torch.Tensor, dim: int, index: Any, lowest: int) -> None:
    known = content(index) if isinstance(index, torch.Tensor) and index.numel() else None
    if known is None:
        return
    size = tensor.shape[dim]
    for number in (int(known.min()), int(known.max())):
        if not lowest <= number < size:
            raise IndexError(f"index {number} is out of bounds for dimension {dim} with size {size}")

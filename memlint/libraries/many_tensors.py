"""Kernels of many tensors at once, which apex has and Transformer Engine took over.

apex 25.09: csrc/multi_tensor_l2norm_kernel.cu, apex/multi_tensor_apply. Transformer Engine 2.9:
pytorch/csrc/extensions/multi_tensor, pytorch/optimizers/multi_tensor_apply.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from memlint.libraries.library import Library, launch

Tensor = torch.Tensor
CHUNK = 2048 * 32
"""Elements that a block of a kernel has."""
_SUMS = 320
"""The number of partial sums of a norm."""


def norm_of(library: Library, tensors: Sequence[Tensor], *, per_tensor: bool, chunk: int) -> tuple[Tensor, Tensor]:
    """The norm of all, and with `per_tensor` of each (`multi_tensor_l2norm_cuda`)."""
    library.assume()
    made = tensors[0].new_zeros(_SUMS, dtype=torch.float32)
    chunks = -(-max(t.numel() for t in tensors) // chunk)
    each = made.new_zeros(len(tensors) * chunks) if per_tensor else None
    norms = made.new_empty(len(tensors) if per_tensor else 0)
    norm = made.new_empty(1)
    launch((*tensors, made, each), (norm, norms))
    return norm, norms


def l2norm(library: Library) -> Callable[..., tuple[Tensor, Tensor]]:
    """The function of norms of the first list; what an inverse of a scale is given for is no tensor more."""

    def multi_tensor_l2norm(
        chunk_size: int, noop_flag: Tensor, tensor_lists: Sequence[Sequence[Tensor]], *more: Any
    ) -> tuple[Tensor, Tensor]:
        return norm_of(library, tensor_lists[0], per_tensor=bool(more and more[-1] is True), chunk=chunk_size)

    return multi_tensor_l2norm


def in_place(library: Library) -> Callable[..., None]:
    """A function that writes its tensors in place and takes nothing."""

    def apply(_chunk: int, noop_flag: Tensor, tensor_lists: Sequence[Sequence[Tensor]], *_: Any) -> None:
        library.assume()
        tensors = [tensor for tensors in tensor_lists for tensor in tensors]
        launch(tensors, (*tensors, noop_flag))

    return apply


class MultiTensorApply:
    """Calls a function of many tensors with the elements that a block of it has."""

    available = True

    def __init__(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size

    def __call__(self, op: Callable[..., Any], noop_flag_buffer: Tensor, tensor_lists: Any, *args: Any) -> Any:
        """Call it."""
        return op(self.chunk_size, noop_flag_buffer, tensor_lists, *args)

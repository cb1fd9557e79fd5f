"""Refuses operands of dtypes that CUDA's kernels refuse and PyTorch's meta kernels take."""

from typing import Any

import torch

from memlint.accelerator.device import NAME, entry_of, real_device_of

_OF_ONE_DTYPE = {
    "mm": (0, 1),
    "convolution": (0, 1),
    "native_layer_norm": (0, 2, 3),
    "native_group_norm": (0, 1, 2),
    "index_put": (0, 2),
    "index_put_": (0, 2),
    "_index_put_impl_": (0, 2),
}
"""The places of operands that must have one dtype. On the CPU layer_norm and group_norm take weights of float32 beside
bfloat16. Sources: Blas.cpp, Convolution.cpp, layer_norm_kernel.cu, group_norm_kernel.cu, TensorAdvancedIndexing.cpp."""

_OF_FLOATS = {
    "mm", "addmm", "bmm", "baddbmm", "addmv", "dot", "convolution", "_softmax", "_log_softmax", "gelu",
    "native_layer_norm", "native_group_norm",
}  # fmt: skip
"""Ops that CUDA has for floating-point and complex numbers alone."""


def refuse_dtypes(packet: str, args: tuple[Any, ...]) -> None:
    """Raise RuntimeError, as the GPU does, if its kernel of the op takes no operands of these dtypes."""
    if packet in _OF_FLOATS and _is_on_gpu(args[0]) and not _is_of_floats(args[0]):
        raise RuntimeError(f"\"{packet}\" not implemented for '{_name(args[0])}'")
    positions = _OF_ONE_DTYPE.get(packet)
    if positions is None or not _is_on_gpu(args[0]):
        return
    first, *others = (args[at] for at in positions if at < len(args) and args[at] is not None)
    for other in others:
        if other.dtype != first.dtype:
            raise RuntimeError(
                f"{packet}: expected operands of the same dtype, but got {_name(first)} and {_name(other)}"
            )


def _is_on_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and real_device_of(value).type == NAME and not entry_of(value).host


def _is_of_floats(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _name(tensor: torch.Tensor) -> str:
    """Return the dtype's name as PyTorch's own messages have it."""
    return tensor.type().rpartition(".")[2].removesuffix("Tensor")

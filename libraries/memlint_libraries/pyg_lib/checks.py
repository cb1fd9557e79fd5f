"""pyg_lib 0.9.0: the library, and what it refuses."""

import torch

from memlint.libraries.library import Library

Tensor = torch.Tensor
library = Library("pyg_lib", distribution="pyg-lib", version="0.9.0")
DTYPES = {
    torch.bfloat16: "BFloat16", torch.float16: "Half", torch.int64: "Long", torch.int32: "Int", torch.int16: "Short",
    torch.int8: "Char", torch.uint8: "Byte", torch.bool: "Bool",
}  # fmt: skip
"""The names that PyTorch gives dtypes in the error of a kernel that lacks them."""


def check(holds: bool, message: str) -> None:
    """Refuse arguments as `TORCH_CHECK` does, by a RuntimeError."""
    if not holds:
        raise RuntimeError(message)


def dispatch(kernel: str, tensor: Tensor, *more: torch.dtype) -> None:
    """Refuse what a kernel on the GPU has not got: it has float32, float64, and `more`."""
    if tensor.dtype not in {torch.float32, torch.float64, *more}:
        name = DTYPES.get(tensor.dtype, str(tensor.dtype))
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{name}'")


def host_alone(op: str, *tensors: Tensor) -> None:
    """Refuse tensors on a GPU, as the dispatcher does where an op has a kernel for the CPU alone."""
    if any(tensor.is_cuda for tensor in tensors):
        raise NotImplementedError(
            f"Could not run 'pyg::{op}' with arguments from the 'CUDA' backend. "
            "pyg-lib registers a kernel of it for the backend 'CPU' alone."
        )

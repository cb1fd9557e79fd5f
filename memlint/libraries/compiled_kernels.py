"""Kernels that a program compiles from CUDA sources with `torch.cuda._compile_kernel`, on a simulated GPU.

NVRTC is never asked. A launch allocates nothing, so it is nothing, and what it may write is not known.
"""

from collections.abc import Iterable
from typing import Any

import torch

from memlint.accelerator.private import COMPILE_KERNEL
from memlint.libraries.library import assume_once, launch


def install() -> None:
    """Let such kernels do nothing in this process from now on, in versions of PyTorch that compile them."""
    if hasattr(torch.cuda, COMPILE_KERNEL):
        setattr(torch.cuda, COMPILE_KERNEL, _Kernel)


class _Kernel:
    """A kernel of which no more is known than what it is called with."""

    def __init__(self, kernel_source: str, kernel_name: str, *_: Any, **__: Any) -> None:
        self._name = kernel_name

    def __call__(
        self, grid: Any = None, block: Any = None, args: Iterable[Any] | None = None, *_: Any, **__: Any
    ) -> None:
        assume_once(f"the CUDA kernel {self._name} is not run: it takes no memory, and what it writes is not known")
        operands = list(args or ())
        launch(operands, operands)

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Do nothing: shared memory is none of the GPU's."""

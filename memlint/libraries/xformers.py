"""xFormers runs its own Python, and attention as it would on CUDA: by PyTorch's own kernels, where it finds no others.

Held against 0.0.35. Of ops/fmha, dispatch.py prefers FlashAttention (flash.py, by `aten._flash_attention_forward`) to
memory-efficient attention (cutlass.py, by `aten._efficient_attention_forward`); ops/swiglu_op.py has no kernel.
"""

from typing import Any

from memlint.base.after_import import after_import


def install() -> None:
    """Let xFormers, where it is imported from now on, believe that it was built for CUDA."""
    after_import("xformers._cpp_lib", _build_for_cuda)


def _build_for_cuda(module: Any) -> None:
    module._built_with_cuda = True

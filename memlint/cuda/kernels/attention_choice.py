"""The kernel that CUDA chooses for attention: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp."""

import os

import torch

from memlint.accelerator.private import attention_backends
from memlint.cuda.simulated import simulated
from memlint.cuda.versions import cudnn_versions, torch_version

Tensor = torch.Tensor
HALF = (torch.float16, torch.bfloat16)
MATH, FLASH, EFFICIENT, CUDNN = 0, 1, 2, 3
BLACKWELL = 10
CUDNN_CAPABILITIES = ((9, 0), (10, 0), (10, 3))
"""Data centre's Hopper and Blackwell, where cuDNN is preferred."""


def capability_of_gpu() -> tuple[int, int]:
    """Return the compute capability of the simulated GPU."""
    return simulated().device.capability


def shapes_fit(q: Tensor, k: Tensor, v: Tensor, *, grouped: bool) -> bool:
    """Return True if fused kernels can read these operands: batches of heads of one dtype."""
    if not (q.dim() == k.dim() == v.dim() == 4 and q.dtype == k.dtype == v.dtype):
        return False
    if 0 in (q.shape[0], q.shape[2], k.shape[2]) or any(t.stride(-1) != 1 for t in (q, k, v)):
        return False
    return (grouped or q.shape[1] == k.shape[1] == v.shape[1]) and q.shape[0] == k.shape[0] == v.shape[0]


def takes_flash(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool, grouped: bool
) -> bool:
    """Return True if FlashAttention accepts these operands on the simulated GPU."""
    capability, head = capability_of_gpu(), q.shape[-1]
    needs_grad = any(t.requires_grad for t in (q, k, v))
    refused_in_training = (
        capability in ((8, 6), (8, 9), (12, 0), (12, 1))
        and needs_grad
        and (192 < head <= 224 or (head > 224 and dropout > 0))
    )
    return (
        torch.backends.cuda.flash_sdp_enabled()
        and capability >= (8, 0)
        and mask is None
        and q.dtype in HALF
        and shapes_fit(q, k, v, grouped=grouped)
        and k.shape[-1] == v.shape[-1] == head <= 256
        and not (causal and q.shape[2] != k.shape[2])
        and not refused_in_training
    )


def takes_efficient(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, grouped: bool) -> bool:
    """Return True if memory-efficient attention accepts these operands on the simulated GPU."""
    capability = capability_of_gpu()
    dtypes = (torch.float16, torch.float32, *((torch.bfloat16,) if capability >= (8, 0) else ()))
    if capability >= (8, 0):
        alignment = 8 if q.dtype in HALF else 4
    else:
        alignment = 8 if q.dtype is torch.float16 and capability >= (7, 0) else 1
    return (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and capability >= (5, 0)
        and q.dtype in dtypes
        and shapes_fit(q, k, v, grouped=False)
        and not (grouped and q.shape[1] != k.shape[1])
        and all(t.shape[-1] % alignment == 0 for t in (q, k, v))
        and q.shape[-1] == k.shape[-1]
    )


def takes_cudnn(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, grouped: bool) -> bool:
    """Return True if cuDNN accepts these operands on the simulated GPU."""
    capability, version = capability_of_gpu(), cudnn_versions()[0]
    largest = 256 if capability == (9, 0) and version >= 91000 else 128
    heads = q.shape[-1], v.shape[-1]
    if capability[0] == BLACKWELL and version >= 91100 and heads == (192, 128):
        largest = 192
    return (
        torch.backends.cuda.cudnn_sdp_enabled()
        and capability >= (8, 0)
        and version >= 90000
        and q.dtype in HALF
        and shapes_fit(q, k, v, grouped=grouped)
        and _mask_fits(q, k, mask)
        and all(size <= largest and size % 8 == 0 for size in heads)
        and k.shape[2] > 1
        and not (dropout > 0 and (q.shape[2] == 1 or 91000 < version < 91400))
        and not is_deterministic()
    )


def _mask_fits(q: Tensor, k: Tensor, mask: Tensor | None) -> bool:
    """Return True if cuDNN can read this mask, which then needs no gradient (`check_attn_mask_shape`)."""
    if mask is None:
        return True
    sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])[-mask.dim() :]
    fits = all(n in (1, size) for n, size in zip(mask.shape, sizes, strict=False))
    return not mask.requires_grad and mask.dim() in (2, 4) and fits


def is_deterministic() -> bool:
    """Return True if the program forbids kernels whose results differ from run to run."""
    return torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()


def _prefers_cudnn() -> bool:
    """Return True if PyTorch asks cuDNN first (`check_prefer_cudnn_attention`): pull requests 162073 and 171627.

    On data centre's Hopper and Blackwell: in torch 2.9 from cuDNN 9.9 on, since then from 9.15.1 on, which PyPI's
    wheels have from 2.11 on. Measured with torch 2.11 on H200.
    """
    first = 90900 if torch_version() == (2, 9) else 91501
    asked = torch_version() >= (2, 9) and os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") != "1"
    return asked and capability_of_gpu() in CUDNN_CAPABILITIES and cudnn_versions()[0] >= first


def _order() -> list[int]:
    """Return the backends in the order in which CUDA asks them: the program's, if it gave one, else the default."""
    order = attention_backends()
    return [CUDNN, *order] if order[:3] == [FLASH, EFFICIENT, MATH] and _prefers_cudnn() else order


def choose(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool, grouped: bool) -> int:
    """Choose the backend as CUDA does, in PyTorch's order of preference; math always qualifies."""
    for backend in _order():
        if backend == CUDNN and takes_cudnn(q, k, v, mask, dropout, grouped):
            return CUDNN
        if backend == FLASH and takes_flash(q, k, v, mask, dropout, causal, grouped):
            return FLASH
        if backend == EFFICIENT and takes_efficient(q, k, v, mask, grouped):
            return EFFICIENT
        if backend == MATH and torch.backends.cuda.math_sdp_enabled():
            return MATH
    return MATH

"""Scaled-dot-product attention of cuDNN: what it keeps, and its workspaces.

Tensors are those of aten/src/ATen/native/transformers/cuda/attention.cu and attention_backward.cu, and of
aten/src/ATen/native/cudnn/MHA.cpp. The workspaces are cuDNN's own: equal to every size measured with cuDNN 9.19 on
H200, for heads of 32 to 256, 197 to 2,048 rows, with masks, dropout and groups. On other GPUs than Hopper they may be
other ones, down to none.
"""

import math
from typing import Any

import torch

from memlint.accelerator.device import allocate, contiguous, scratch
from memlint.accelerator.registration import kernel
from memlint.cuda.kernels.attention import laid_out_as
from memlint.cuda.kernels.attention_choice import capability_of_gpu
from memlint.cuda.simulated import simulated

Tensor = torch.Tensor
DESCRIPTORS = 256
"""Bytes of each workspace beside the numbers in it."""
HOPPER = 9


@kernel("_scaled_dot_product_cudnn_attention")
def _forward(
    q: Tensor, k: Tensor, v: Tensor, _mask: Tensor | None, compute_lse: bool, *_: Any, **__: Any
) -> tuple[Any, ...]:
    """The state of the random generator, the output laid out as the query, the logsumexp and a workspace."""
    seed, offset = allocate((), (), torch.int64), allocate((), (), torch.int64)
    out = _output(q, v.shape[-1])
    lse = contiguous((*q.shape[:3], 1), torch.float32) if compute_lse else None
    workspace = _workspace(_forward_workspace(q, k))
    del workspace
    return out, lse, None, None, q.shape[2], k.shape[2], seed, offset, None


def _output(q: Tensor, size: int) -> Tensor:
    """Allocate the output: the layout of the query where their sizes agree."""
    return laid_out_as(q) if size == q.shape[-1] else contiguous((*q.shape[:3], size), q.dtype)


def _workspace(nbytes: int) -> Any:
    return scratch(nbytes, None if capability_of_gpu()[0] == HOPPER else (0, nbytes))


def _forward_workspace(q: Tensor, k: Tensor) -> int:
    """Bytes of descriptors; for one query the outputs of parts of the keys, as many as fill the GPU twice.

    A part has its output, its maximum and its sum in float32. Measured: 8 parts for 32 groups, one, with no workspace
    at all, for 128 heads, on 132 multiprocessors.
    """
    batch, heads, rows, size = q.shape
    if rows > 1:
        return DESCRIPTORS
    num_sms, groups = simulated().device.num_sms, batch * k.shape[1]
    parts = 2 * num_sms // groups if groups < 0.8 * num_sms else 1
    return 4 * parts * batch * heads * (size + 2) + DESCRIPTORS // 2 if parts > 1 else 0


@kernel("_scaled_dot_product_cudnn_attention_backward")
def _backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, ...]:
    """Gradients laid out as the operands, a copy of a gradient that is not dense, and a workspace."""
    grads = tuple(laid_out_as(t) for t in (q, k, v))
    copy = contiguous(grad.shape, grad.dtype) if grad.stride(-1) != 1 else None
    workspace = _workspace(_backward_workspace(q, k, v))
    del workspace, copy
    return grads


def _backward_workspace(q: Tensor, k: Tensor, v: Tensor) -> int:
    """Bytes of the gradient of queries in float32, of a sum for each row, and of each head's dk and dv in a group."""
    rows = math.prod(q.shape[:3])
    of_heads = 0 if q.shape[1] == k.shape[1] else q.shape[1] // k.shape[1] * (k.numel() + v.numel())
    return 4 * q.numel() + 4 * rows + of_heads * q.element_size() + DESCRIPTORS

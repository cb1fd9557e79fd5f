"""MultiScaleDeformableAttention 1.0, the compiled module of Deformable DETR and of the detectors that followed it.

models/ops/src/cuda/ms_deform_attn_cuda.cu:63 and 119: its kernels take no memory of their own.
"""

import torch

from memlint.libraries.library import Library, launch

Tensor = torch.Tensor
_NAME = "MultiScaleDeformableAttention"
library = Library(_NAME, distribution=_NAME, version="1.0")


@library.provides(_NAME)
def ms_deform_attn_forward(
    value: Tensor, spatial_shapes: Tensor, level_start_index: Tensor, sampling_loc: Tensor, attn_weight: Tensor,
    im2col_step: int,
) -> Tensor:  # fmt: skip
    """Return [batch, queries, heads x channels] of `value` [batch, places, heads, channels]."""
    library.assume()
    batch, _, heads, channels = value.shape
    out = torch.zeros((batch, sampling_loc.shape[1], heads * channels), dtype=value.dtype, device=value.device)
    launch((value, spatial_shapes, level_start_index, sampling_loc, attn_weight), (out,))
    return out


@library.provides(_NAME)
def ms_deform_attn_backward(
    value: Tensor, spatial_shapes: Tensor, level_start_index: Tensor, sampling_loc: Tensor, attn_weight: Tensor,
    grad_output: Tensor, im2col_step: int,
) -> list[Tensor]:  # fmt: skip
    """Return the gradients of values, places and weights."""
    library.assume()
    grads = [torch.zeros_like(each) for each in (value, sampling_loc, attn_weight)]
    launch((value, spatial_shapes, level_start_index, sampling_loc, attn_weight, grad_output), grads)
    return grads

"""Ops whose results have shapes that PyTorch has no meta kernel for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memlint.accelerator.device import allocate, real
from memlint.accelerator.kernels import explicit

if TYPE_CHECKING:
    from collections.abc import Sequence

Tensor = torch.Tensor
_GRU_WORKSPACE = 5
"""Numbers per hidden unit that the fused cell keeps (aten/src/ATen/native/cuda/RNN.cu)."""


def contiguous(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A new tensor of this shape."""
    return allocate(shape, real.empty(shape, device="meta").stride(), dtype)


def like(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A new contiguous tensor of the shape of `x`."""
    return contiguous(x.shape, dtype or x.dtype)


@explicit(
    "aten._logcumsumexp.default",
    "aten.binomial.default",
    "aten._sample_dirichlet.default",
    "aten._masked_softmax.default",
    "aten._standard_gamma.default",  # the last has a meta kernel from torch 2.13 on
)
def _like_first(x: Tensor, *_: Any, **__: Any) -> Tensor:
    return like(x)


@explicit("aten._standard_gamma_grad.default", "aten._dirichlet_grad.default", "aten._masked_softmax_backward.default")
def _like_gradient(grad: Tensor, *_: Any, **__: Any) -> Tensor:
    return like(grad)


@explicit(
    "aten.multi_margin_loss_backward.default",
    "aten.multilabel_margin_loss_backward.default",
    "aten.fractional_max_pool3d_backward.default",
)
def _like_input(grad: Tensor, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return like(x)


@explicit("aten._cummax_helper.default", "aten._cummin_helper.default")
def _writes_outputs(*_: Any) -> None:
    """Both outputs are given, and have their shape."""


@explicit(
    "aten.fake_quantize_per_tensor_affine_cachemask.default",
    "aten.fake_quantize_per_channel_affine_cachemask.default",
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
)
def _fake_quantize(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return like(x), like(x, torch.bool)


@explicit("aten.geqrf.default")
def _geqrf(x: Tensor) -> tuple[Tensor, Tensor]:
    *batch, rows, columns = x.shape
    factors = contiguous((*batch, columns, rows), x.dtype).mT
    return factors, contiguous((*batch, min(rows, columns)), x.dtype)


@explicit(
    "aten._fused_sgd_.default",
    "aten._fused_sgd_.tensor_lr",
    "aten._fused_adagrad_.default",
    "aten._fused_adagrad_.tensor_lr",
    "aten._fused_adam_.tensor_lr",
    "aten._fused_adamw_.tensor_lr",
)
def _fused_step(*_: Any, **__: Any) -> None:
    """One kernel for a whole list of parameters; it allocates nothing."""


@explicit("aten._thnn_fused_gru_cell.default")
def _gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    workspace = contiguous((hx.shape[0], hx.shape[1] * _GRU_WORKSPACE), hx.dtype)
    return like(hx), workspace


@explicit("aten._thnn_fused_gru_cell_backward.default")
def _gru_cell_backward(grad: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    gates = (workspace.shape[0], workspace.shape[1] // _GRU_WORKSPACE * 3)
    grad_gates = [contiguous(gates, workspace.dtype) for _ in range(2)]
    grad_hx = like(grad)
    grad_biases = [contiguous(gates[1:], workspace.dtype) if has_bias else None for _ in range(2)]
    return *grad_gates, grad_hx, *grad_biases


@explicit("aten.batch_norm_stats.default")
def _batch_norm_stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    return contiguous((x.shape[1],), dtype), contiguous((x.shape[1],), dtype)


@explicit("aten.batch_norm_elemt.default")
def _batch_norm_elemt(x: Tensor, *_: Any) -> Tensor:
    return like(x)


@explicit("aten.batch_norm_gather_stats_with_counts.default")
def _batch_norm_gather(x: Tensor, mean: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return contiguous((x.shape[1],), mean.dtype), contiguous((x.shape[1],), mean.dtype)


@explicit("aten.batch_norm_backward_reduce.default")
def _batch_norm_backward_reduce(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor | None, ...]:
    sums = [contiguous((x.shape[1],), mean.dtype) if input_g else None for _ in range(2)]
    dtype = mean.dtype if weight is None else weight.dtype
    return *sums, *(contiguous((x.shape[1],), dtype) if wanted else None for wanted in (weight_g, bias_g))


@explicit("aten.batch_norm_backward_elemt.default")
def _batch_norm_backward_elemt(grad: Tensor, x: Tensor, *_: Any) -> Tensor:
    return like(x)

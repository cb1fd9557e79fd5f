"""Ops whose results have shapes that PyTorch has no meta kernel for."""

from __future__ import annotations

from typing import Any

import torch

from memlint.accelerator.device import contiguous, like
from memlint.accelerator.registration import kernel

Tensor = torch.Tensor
_GRU_WORKSPACE = 5
"""Numbers per hidden unit that the fused cell keeps (aten/src/ATen/native/cuda/RNN.cu)."""


@kernel(
    "_logcumsumexp",
    "binomial",
    "_sample_dirichlet",
    "_masked_softmax",
    "_standard_gamma",  # the last has a meta kernel from torch 2.13 on
    "batch_norm_elemt",
)
def _like_first(x: Tensor, *_: Any, **__: Any) -> Tensor:
    return like(x)


@kernel("_standard_gamma_grad", "_dirichlet_grad", "_masked_softmax_backward")
def _like_gradient(grad: Tensor, *_: Any, **__: Any) -> Tensor:
    return like(grad)


@kernel(
    "multi_margin_loss_backward", "multilabel_margin_loss_backward", "fractional_max_pool3d_backward",
    "batch_norm_backward_elemt",
)  # fmt: skip
def _like_input(grad: Tensor, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return like(x)


@kernel("_cummax_helper", "_cummin_helper")
def _writes_outputs(*_: Any) -> None:
    """Both outputs are given, and have their shape."""


@kernel(
    "fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
)  # fmt: skip
def _fake_quantize(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return like(x), like(x, torch.bool)


@kernel("geqrf")
def _geqrf(x: Tensor) -> tuple[Tensor, Tensor]:
    *batch, rows, columns = x.shape
    factors = contiguous((*batch, columns, rows), x.dtype).mT
    return factors, contiguous((*batch, min(rows, columns)), x.dtype)


@kernel(
    "_fused_sgd_", "_fused_sgd_.tensor_lr", "_fused_adagrad_", "_fused_adagrad_.tensor_lr", "_fused_adam_.tensor_lr",
    "_fused_adamw_.tensor_lr",
)  # fmt: skip
def _fused_step(*_: Any, **__: Any) -> None:
    """One kernel for a whole list of parameters; it allocates nothing."""


@kernel("_thnn_fused_gru_cell")
def _gru_cell(input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, *_biases: Any) -> tuple[Tensor, Tensor]:
    workspace = contiguous((hx.shape[0], hx.shape[1] * _GRU_WORKSPACE), hx.dtype)
    return like(hx), workspace


@kernel("_thnn_fused_gru_cell_backward")
def _gru_cell_backward(grad: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    gates = (workspace.shape[0], workspace.shape[1] // _GRU_WORKSPACE * 3)
    grad_gates = [contiguous(gates, workspace.dtype) for _ in range(2)]
    grad_hx = like(grad)
    grad_biases = [contiguous(gates[1:], workspace.dtype) if has_bias else None for _ in range(2)]
    return *grad_gates, grad_hx, *grad_biases


@kernel("batch_norm_stats")
def _batch_norm_stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    return contiguous((x.shape[1],), dtype), contiguous((x.shape[1],), dtype)


@kernel("batch_norm_gather_stats_with_counts")
def _batch_norm_gather(x: Tensor, mean: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return contiguous((x.shape[1],), mean.dtype), contiguous((x.shape[1],), mean.dtype)


@kernel("batch_norm_backward_reduce")
def _batch_norm_backward_reduce(grad: Tensor, x: Tensor, mean: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    _invstd, weight, input_g, weight_g, bias_g = rest
    dtype = mean.dtype if weight is None else weight.dtype
    results = (mean.dtype, input_g), (mean.dtype, input_g), (dtype, weight_g), (dtype, bias_g)
    return tuple(contiguous((x.shape[1],), dtype) if is_needed else None for dtype, is_needed in results)

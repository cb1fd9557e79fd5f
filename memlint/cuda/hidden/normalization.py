"""Rows of normalisation kernels and softmax: partial sums of a backward, copies of operands that are not contiguous."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from memlint.accelerator.device import scratch
from memlint.cuda.hidden.reductions import stage
from memlint.cuda.hidden.table import Steps, contiguous, hidden
from memlint.cuda.simulated import simulated

Tensor = torch.Tensor
MANY_ROWS = 64 * 1024
ROWS_PER_BLOCK = 32
COLUMNS_PER_BLOCK = 32
MAX_BLOCKS = 64 * 1024 // 2


@hidden("_softmax", "_log_softmax", source="SoftMax.cu (host_softmax)")
@hidden("native_layer_norm", "_fused_rms_norm", source="layer_norm_kernel.cu")
def _dense_input(x: Tensor, *_: Any) -> Steps:
    """A copy of an input that is not contiguous."""
    dense = contiguous(x)
    yield
    del dense


@hidden("_softmax_backward_data", "_log_softmax_backward_data", source="SoftMax.cu (host_softmax_backward)")
@hidden(
    *("_softmax_backward_data", "_log_softmax_backward_data"),
    source="SoftMax.cpp: softmax_backward_cpu_out",
    devices="host",
)
def _softmax_backward(grad: Tensor, output: Tensor, *_: Any) -> Steps:
    """Copies of a gradient or an output that is not contiguous, such as the gradient of a sum."""
    yield
    copies = contiguous(grad), contiguous(output)
    del copies


@hidden("_softmax", "_log_softmax", source="SoftMax.cpp: softmax_cpu_out", devices="host")
@hidden("log_sigmoid_forward", source="Activation.cpp: log_sigmoid_forward_cpu", devices="host")
def _dense_input_of_host(x: Tensor, *_: Any) -> Steps:
    """A copy of an input that is not contiguous."""
    yield
    contiguous(x)


@hidden("native_layer_norm_backward", source="layer_norm_kernel.cu")
def _layer_norm_backward(grad: Tensor, x: Tensor, shape: Sequence[int], *rest: Any) -> Steps:
    """Above 65,536 short rows: partial sums of the gradients of weight and bias, one row for every 32."""
    _mean, _rstd, weight, bias, output_mask = rest
    copies = contiguous(grad), contiguous(x)
    yield
    _partials(x, shape, weight, (weight is not None and output_mask[1], bias is not None and output_mask[2]))
    del copies


@hidden("native_layer_norm_backward", source="layer_norm.cpp: layer_norm_backward_cpu; run", devices="host")
def _layer_norm_backward_of_host(grad: Tensor, x: Tensor, *_: Any) -> Steps:
    """Copies of a gradient and of an input that are not contiguous."""
    copies = contiguous(grad), contiguous(x)
    yield
    del copies


@hidden("_fused_rms_norm_backward", source="layer_norm_kernel.cu")
def _rms_norm_backward(
    grad: Tensor, x: Tensor, shape: Sequence[int], rstd: Tensor, weight: Tensor | None, output_mask: Sequence[bool]
) -> Steps:
    """As layer norm's, without a bias."""
    copies = contiguous(grad), contiguous(x)
    yield
    _partials(x, shape, weight, (weight is not None and output_mask[1],))
    del copies


def _partials(x: Tensor, shape: Sequence[int], weight: Tensor | None, needed: Sequence[bool]) -> None:
    columns = math.prod(shape)
    rows = x.numel() // max(columns, 1)
    if weight is None or rows <= MANY_ROWS or columns // COLUMNS_PER_BLOCK >= simulated().device.num_sms // 2:
        return
    across = -(-columns // COLUMNS_PER_BLOCK)
    blocks = min(MAX_BLOCKS // across, -(-rows // ROWS_PER_BLOCK))
    taken = [scratch(blocks * columns * weight.element_size()) for is_needed in needed if is_needed]
    summed = torch.empty((blocks, columns), dtype=weight.dtype, device="meta")
    for _ in taken:
        sums = scratch(columns * weight.element_size())
        stage(summed, 0, 4, (weight.element_size(),))
        del sums
    del taken


@hidden("native_group_norm_backward", source="group_norm_kernel.cu; measured on B200")
def _group_norm_backward(grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, *rest: Any) -> Steps:
    """Sums over positions of the gradient and of its product with the input, [N, C] each in float32.

    For the gradient of the input two factors of [N, group], one of [N, C] with a weight; channels_last: sums over rows.
    """
    weight, n, c, hxw, group, output_mask = rest
    wide = max(x.element_size(), 4)
    yield
    sums = scratch(wide * n * c), scratch(wide * n * c)
    if hxw > 1 and not x.is_contiguous():
        scratch(wide * n * c * 2 * _closest_factor(hxw))
    if output_mask[0]:
        factors = [scratch(wide * n * group), scratch(wide * n * group)]
        if weight is not None:
            factors.append(scratch(wide * n * c))
        del factors
    del sums


def _closest_factor(n: int) -> int:
    """The largest divisor of `n` that is not above its square root."""
    return next(divisor for divisor in range(math.isqrt(n), 0, -1) if n % divisor == 0)

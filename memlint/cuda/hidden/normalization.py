"""Rows of normalisation kernels and softmax: partial sums of a backward, copies of operands that are not contiguous."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from memlint.accelerator.device import scratch
from memlint.accelerator.private import DisableTorchFunction, contiguous_strides, output_strides
from memlint.cuda.hidden.reductions import stage
from memlint.cuda.hidden.staging import power_of_two
from memlint.cuda.hidden.table import Steps, contiguous, copy_of, hidden
from memlint.cuda.kernels.composites import suggested_format
from memlint.cuda.simulated import simulated

Tensor = torch.Tensor
MANY_ROWS = 64 * 1024
ROWS_PER_BLOCK = 32
COLUMNS_PER_BLOCK = 32
MAX_BLOCKS = 64 * 1024 // 2
FEW_ELEMENTS, FEW_BYTES = 1024, 4096
"""Size of rows, in elements and in bytes, up to which masked softmax keeps them in registers (SoftMax.cu)."""
SOURCE_MASK = 0
"""Mask type of a mask that every sequence and head shares."""


@hidden("_softmax", "_log_softmax", source="SoftMax.cu (host_softmax)")
@hidden("native_layer_norm", "_fused_rms_norm", source="layer_norm_kernel.cu")
def _dense_input(x: Tensor, *_: Any) -> Steps:
    """A copy of an input that is not contiguous."""
    dense = contiguous(x)
    yield
    del dense


@hidden("_log_softmax_backward_data", source="SoftMax.cu (host_softmax_backward)")
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


@hidden("_softmax_backward_data", source="SoftMax.cu: softmax_backward_cuda_out; measured")
def _softmax_backward_by_product(grad: Tensor, output: Tensor, *_: Any) -> Steps:
    """The gradient times the output; copies of this product and of an output that are not contiguous."""
    yield
    product = copy_of(output)
    with DisableTorchFunction():
        strides = output_strides(grad, output)
    dense = contiguous_strides(output.shape)
    is_dense = all(n == 1 or a == b for n, a, b in zip(output.shape, strides, dense, strict=True))
    copies = None if is_dense else copy_of(output), contiguous(output)
    del copies, product


@hidden("_masked_softmax", source="SoftMax.cu: masked_softmax_cuda")
def _masked_softmax(x: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Steps:
    """Unless rows are short and the mask is contiguous: the filled input, and the softmax in a second output."""
    yield
    dim = x.dim() - 1 if dim is None else dim
    length = x.shape[dim] if x.dim() else 1
    is_shared = mask_type == SOURCE_MASK and mask.shape != x.shape
    short = length <= FEW_ELEMENTS and length * x.element_size() <= FEW_BYTES and dim == x.dim() - 1
    if not short or not (mask.expand(x.shape) if is_shared else mask).is_contiguous():
        filled = copy_of(x)
        result = copy_of(x)
        del result, filled


@hidden("_masked_softmax_backward", source="SoftMax.cu: masked_softmax_backward_cuda")
def _masked_softmax_backward(grad: Tensor, output: Tensor, mask: Tensor, dim: int | None = None) -> Steps:
    """Copies of operands that are not contiguous, and the gradient times the output.

    For long rows: the filled output, the product, and a second result.
    """
    yield
    copies = contiguous(grad), contiguous(output), contiguous(mask)
    length = output.shape[-1 if dim is None else dim]
    short = length <= FEW_ELEMENTS and length * grad.element_size() <= FEW_BYTES
    taken = [copy_of(grad)]
    if not short or dim not in (None, -1, grad.dim() - 1):
        taken += [copy_of(grad), copy_of(grad)]
    del taken, copies


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
    dense = contiguous(x)
    yield
    copies = dense, contiguous(grad)
    _partials(x, shape, weight, (weight is not None and output_mask[1], bias is not None and output_mask[2]))
    del copies, dense


@hidden("native_layer_norm_backward", source="layer_norm.cpp: layer_norm_backward_cpu; run", devices="host")
def _layer_norm_backward_of_host(grad: Tensor, x: Tensor, shape: Sequence[int], *rest: Any) -> Steps:
    """Copies of a gradient and an input that are not contiguous.

    A thread's sums for the gradients of weight and bias.
    """
    copies = contiguous(grad), contiguous(x)
    yield
    if any(rest[-1][1:]):
        scratch(2 * math.prod(shape) * x.element_size())
    del copies


@hidden("_fused_rms_norm_backward", source="layer_norm_kernel.cu")
def _rms_norm_backward(
    grad: Tensor, x: Tensor, shape: Sequence[int], rstd: Tensor, weight: Tensor | None, output_mask: Sequence[bool]
) -> Steps:
    """Same as layer norm's, without a bias."""
    dense = contiguous(x)
    yield
    copies = dense, contiguous(grad)
    _partials(x, shape, weight, (weight is not None and output_mask[1],))
    del copies, dense


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

    For the gradient of the input two factors of [N, group], and one of [N, C] with a weight; channels_last: sums over
    rows.
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
    """Return the largest divisor of `n` that is not above its square root."""
    return next(divisor for divisor in range(math.isqrt(n), 0, -1) if n % divisor == 0)


@hidden("native_batch_norm", source="Normalization.cuh: batch_norm_stats_channels_last_cuda_template; measured on H200")
def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None, training: bool,
    *_: Any,
) -> Steps:  # fmt: skip
    """In training with channels last: four numbers of each block for every channel, and counters of blocks."""
    yield
    if training and _has_channels_last(x):
        _of_blocks(x, 4)


@hidden("native_batch_norm_backward", source="Normalization.cuh: batch_norm_backward_reduce; measured on H200")
def _batch_norm_backward(grad: Tensor, x: Tensor, *_: Any) -> Steps:
    """With channels last two sums for each channel, and in blocks these and those of weight and bias."""
    if not _has_channels_last(x):
        yield
        return
    sums = [scratch(4 * x.shape[1]) for _ in range(2)]
    _of_blocks(x, 2)
    yield
    del sums


def _has_channels_last(x: Tensor) -> bool:
    return suggested_format(x) is not torch.contiguous_format or (x.is_contiguous() and x.stride(1) == 1)


def _of_blocks(x: Tensor, numbers: int) -> None:
    """Allocate and free partial sums of float32 for each channel where several blocks share it."""
    channels = x.shape[1]
    rows = x.numel() // max(channels, 1)
    wide, high = _batch_norm_grid(channels, rows)
    if high > 1:
        staging, counters = scratch(4 * numbers * channels * high), scratch(4 * wide)
        del staging, counters


def _batch_norm_grid(channels: int, rows: int) -> tuple[int, int]:
    """Return the blocks across channels and across rows: `flexible_launch_configs`, of at least 8 or one."""
    width = min(power_of_two(channels), 32)
    height = min(power_of_two(-(-rows // 16)), 512 // width)
    if width * height != 512:
        width = min(power_of_two(channels), 512 // height)
    high = min(-(-rows // (16 * height)), 128)
    return -(-channels // width), high if high >= 8 else 1

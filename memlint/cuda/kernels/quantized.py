"""Quantized tensors, and linear layers that quantize their input as they run.

A quantized tensor is modelled as a tensor of its integers: it has their bytes, and no scale.
"""

from collections.abc import Sequence
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import allocate, contiguous, entry_of, like, real, scratch
from memlint.accelerator.inference import infer
from memlint.accelerator.kernel import enter_hand_written, kernel_of
from memlint.accelerator.registration import KEY, implement, kernel, overload

aten = torch.ops.aten
Tensor = torch.Tensor
WHOLE = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}
"""Integer dtype that a quantized dtype stores."""


def _in_layout_of(x: Tensor, dtype: torch.dtype) -> Tensor:
    shape = infer(kernel_of(aten.empty_like.default), (x,), {})
    return allocate(shape.shape, shape.stride, dtype)


@kernel("quantize_per_tensor", "quantize_per_tensor.tensor_qparams", "quantize_per_tensor_dynamic")
def _quantize(x: Tensor, *rest: Any) -> Tensor:
    dtype = next(each for each in rest if isinstance(each, torch.dtype))
    return _in_layout_of(x, WHOLE[dtype])


@kernel("quantize_per_channel")
def _quantize_channels(x: Tensor, scales: Tensor, zero_points: Tensor, _axis: int, dtype: torch.dtype) -> Tensor:
    """Quantize by channel; scales are float64, zero points int64 (Quantizer.cpp: make_per_channel_affine_quantizer)."""
    out = _in_layout_of(x, WHOLE[dtype])
    storage: Any = out.untyped_storage()
    storage.quantizer = scales.to(torch.float64), zero_points.to(torch.int64)
    return out


@kernel("dequantize.self")
def _dequantize(x: Tensor) -> Tensor:
    return _in_layout_of(x, torch.float32)


@kernel("int_repr")
def _whole_numbers(x: Tensor) -> Tensor:
    return like(x)


@kernel("_weight_int4pack_mm")
def _int4_product(x: Tensor, weight: Tensor, _group_size: int, _scales_and_zeros: Tensor) -> Tensor:
    """Product with 4-bit weights in tiles of 8 rows, which allocates nothing else (native/cuda/int4mm.cu)."""
    return contiguous((x.shape[0], weight.shape[0] * 8), x.dtype)


def _empty(size: Sequence[int], *, dtype: torch.dtype = torch.quint8, **_: Any) -> Tensor:
    return contiguous(size, WHOLE[dtype])


implement(overload("_empty_affine_quantized"), f"Quantized{KEY}", _empty)


def _pack(weight: Tensor, _bias: Tensor | None = None) -> Any:
    """FBGEMM's copy of a weight: a real one with placeholder numbers. Its bytes count as long as its bias lives."""
    numbers = aten._empty_affine_quantized(list(weight.shape), dtype=torch.qint8, device=torch.device("cpu"))
    bias = real.full(weight.shape[:1], 0.0, device="cpu")
    storage: Any = bias.untyped_storage()
    storage.entry = scratch(0 if entry_of(weight).host else weight.numel())
    return torch.ops.quantized.linear_prepack(numbers, bias)


def _linear(x: Tensor, packed: Any, reduce_range: bool = False) -> Tensor:
    """Return the result, and allocate int32 sums meanwhile."""
    if state.current.cuda and not entry_of(x).host:
        raise NotImplementedError("Could not run 'quantized::linear_dynamic' with arguments from the 'CUDA' backend.")
    row = torch.ops.quantized.linear_dynamic(real.full((1, x.shape[-1]), 0.0, device="cpu"), packed, reduce_range)
    out = contiguous((*x.shape[:-1], row.shape[-1]), torch.float32)
    sums = like(out, torch.int32)
    del sums
    return out


enter_hand_written("quantized.linear_prepack.default", _pack)
for _name in ("linear_dynamic", "linear_relu_dynamic"):
    enter_hand_written(f"quantized.{_name}.default", _linear)

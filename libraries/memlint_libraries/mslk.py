"""mslk 1.1.0, formerly fbgemm's: weights of four bits, as torchao's `Int4WeightOnlyConfig` asks for them.

mslk/quantize/shuffle.py and mslk/quantize/triton/fp8_quantize.py; of csrc/gemm/cutlass bf16i4bf16.cu:221, :282,
bf16i4bf16_rowwise_batched.cu:79, f8i4bf16_rowwise.cu:61, f8i4bf16_shuffled.cu:306 and mixed_dtype_utils.cu:24. CUTLASS
asks for no workspace for these kernels (sm90_gemm_tma_warpspecialized.hpp:242, sm90_tile_scheduler.hpp:140). They have
no gradient. torchao alone gets these functions, where it found none: code that probes for mslk sees that it is absent.
"""

from types import ModuleType
from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.accelerator.private import all_op_names
from memlint.cuda.simulated import simulated
from memlint.libraries.library import Library, contiguous, launch, like
from memlint.libraries.triton import tune_once

Tensor = torch.Tensor
library = Library("mslk", distribution="mslk-cuda", version="1.1.0")
_shuffle = library.provides("mslk.quantize.shuffle")
_INT4 = "torchao.quantization.quantize_.workflows.int4"


@library.patch(f"{_INT4}.int4_tensor", f"{_INT4}.int4_preshuffled_tensor", "torchao.prototype.gptq.api")
def _fill(module: ModuleType) -> None:
    """Let torchao have what its weights of four bits need."""
    there = all_op_names()
    for name, op in _OPS.items():
        if f"mslk::{name}" not in there:
            setattr(torch.ops.mslk, name, op)
    for functions in library.modules.values():
        for name, function in functions.items():
            if getattr(module, name, function) is None:
                setattr(module, name, function)


# --- how weights are made: in float32, with numbers of each group


@_shuffle
def pack_int4(x: Tensor) -> Tensor:
    """Two columns of [rows, columns] int8 in a byte."""
    high = x[:, 1::2] << 4
    low = x[:, ::2] & 15
    return low | high


def _groups(x: Tensor, size: int) -> tuple[Tensor, ...]:
    groups: tuple[Tensor, ...] = x.to(torch.float32).split(size, dim=-1)
    return groups


def _of_groups(numbers: list[Tensor]) -> Tensor:
    """A number of each group and row, [groups, rows]."""
    return torch.cat(numbers, dim=-1).t().contiguous()


@_shuffle
def int4_row_quantize_zp(x: Tensor, group_size: int = 128) -> tuple[Tensor, Tensor, Tensor]:
    """Whole numbers of [rows, columns] in int8, and scales and zeros in float32, [groups, rows]."""
    groups = _groups(x, group_size)
    most, least = ([take(group, 1, keepdim=True) for group in groups] for take in (torch.amax, torch.amin))
    scales = [(high - low).clamp(min=1e-6) / 15 for high, low in zip(most, least, strict=True)]
    zeros = [low + 8 * scale for low, scale in zip(least, scales, strict=True)]
    rounded = [
        group.sub(low).div(scale).round().clamp_(0, 15) for group, low, scale in zip(groups, least, scales, strict=True)
    ]
    rounded = [(group - 8).to(torch.int8) for group in rounded]
    numbers = torch.cat(rounded, dim=-1)
    del rounded
    return numbers, _of_groups(scales), _of_groups(zeros)


@_shuffle
def int4_row_quantize(x: Tensor, group_size: int = 128) -> tuple[Tensor, Tensor]:
    """The same without zeros."""
    groups = _groups(x, group_size)
    scales = [group.abs().amax(dim=-1, keepdim=True).clamp(min=1e-6) / 8 for group in groups]
    rounded = [group.div(scale).round().clamp_(-8, 7) for group, scale in zip(groups, scales, strict=True)]
    numbers = torch.cat(rounded, dim=-1)
    del rounded
    return numbers.to(torch.int8), _of_groups(scales)


@_shuffle
def quantize_int4_preshuffle(
    w: Tensor, group_size: int = 128, dtype: str = "fp8", use_zp: bool = True
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Two numbers a byte in the order of a product; for bfloat16 scales and zeros, for fp8 eight of each scale."""
    if w.ndim > 2:
        made = [quantize_int4_preshuffle(each, group_size, dtype, use_zp) for each in w]
        first, second = zip(*(scales for _, scales in made), strict=True)
        return torch.stack([numbers for numbers, _ in made]), (torch.stack(first), torch.stack(second))
    if dtype == "fp8":
        w, of_rows = quantize_fp8_row(w)
        numbers, scale = int4_row_quantize(w, group_size)
        packed, scale = _preshuffle(pack_int4(numbers), scale.to(torch.float8_e4m3fn))
        return packed, (scale, of_rows)
    numbers, scale, zero = int4_row_quantize_zp(w, group_size) if use_zp else _with_zeros(w, group_size)
    scale, zero = scale.to(torch.bfloat16), zero.to(torch.bfloat16)
    packed, scale = _preshuffle(pack_int4(numbers), scale)
    return packed, (scale, zero)


def _with_zeros(w: Tensor, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    numbers, scale = int4_row_quantize(w, group_size)
    return numbers, scale, torch.zeros_like(scale)


@library.provides("mslk.quantize.triton.fp8_quantize")
def quantize_fp8_row(a: Tensor, scale_ub: Tensor | None = None, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """A byte an element, and a scale in float32 of each row; five configurations are tried for each width."""
    if args or any(value is not None for value in options.values()):
        library.unknown("mslk.quantize.triton.fp8_quantize.quantize_fp8_row(with further arguments)")()
    if not is_virtual(a):
        library.unknown("mslk.quantize.triton.fp8_quantize.quantize_fp8_row(of a tensor of the host)")()
    scale = torch.empty(a.shape[:-1], dtype=torch.float32, device=a.device)
    made = torch.empty(a.shape, dtype=torch.float8_e4m3fn, device=a.device)
    tune_once(("mslk.quantize_fp8_row", a.shape[-1], a.dtype), (a, scale, made))
    launch((a, scale_ub), (scale, made))
    return made, scale


# --- products, whose kernels are those of Hopper alone


def _product(x: Tensor, columns: int) -> Tensor:
    if simulated().device.capability != (9, 0):
        library.unknown("torch.ops.mslk: products with weights of four bits (of a GPU that is not Hopper)")()
    return contiguous((*x.shape[:-1], columns), torch.bfloat16)


def _by_rows(x: Tensor, weight: Tensor, *_: Tensor) -> Tensor:
    return _product(x, weight.shape[-2])


def _flat(x: Tensor, weight: Tensor, *_: Tensor) -> Tensor:
    """Rows of all dimensions but the last are one."""
    return _product(x.reshape(-1, x.shape[-1]), weight.shape[:-1].numel())


_OPS = {
    name: library.kernel(f"{name}(Tensor x, Tensor w, {rest}) -> Tensor")(kernel)
    for name, rest, kernel in (
        ("bf16i4bf16_rowwise", "Tensor scale, Tensor zero", _flat),
        ("bf16i4bf16_shuffled", "Tensor scale, Tensor zero", _flat),
        ("bf16i4bf16_rowwise_batched", "Tensor scale, Tensor zero", _by_rows),
        ("f8i4bf16_rowwise", "Tensor x_scale, Tensor scale, Tensor zero", _by_rows),
        ("f8i4bf16_shuffled", "Tensor x_scale, Tensor scale, Tensor of_groups", _flat),
    )
}
"""The kernels by their names in `torch.ops.mslk`. How they treat a batch of shuffled weights was not read."""


@library.kernel("shuffled(Tensor numbers, Tensor scale) -> (Tensor, Tensor)")
def _shuffled(numbers: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    groups, rows = scale.shape
    return like(numbers), contiguous((groups, 8, rows), scale.dtype)


def _preshuffle(numbers: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """For bfloat16 the same tensors come back, for fp8 others: mixed_dtype_utils.cu:112."""
    return (numbers, scale) if scale.dtype == torch.bfloat16 else _shuffled(numbers, scale)


_OPS["preshuffle_i4"] = _preshuffle

"""Rows of reductions: a cast of the input if it is needed, then staging if an output is split."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from memlint.accelerator.device import scratch
from memlint.cuda.hidden.staging import MAX_THREADS, Reduction, launches
from memlint.cuda.hidden.table import Steps, copy_of, hidden
from memlint.cuda.simulated import simulated

Tensor = torch.Tensor
HALF = (torch.float16, torch.bfloat16)
WITH_INDEX = 16
"""Bytes of a value kept with its int64 index."""
Dims = Sequence[int] | int | None


def stage(
    x: Tensor, dims: Dims, accumulator: int, outputs: tuple[int, ...], *, item: int | None = None, vector: int = 4
) -> None:
    """Allocate and free the memory of reducing `x` over `dims` (all of them if None or empty).

    `accumulator` and `outputs` are the bytes of an element; `item` is that of the input if it was cast to a dense copy
    before.
    """
    if not x.numel():
        return
    stride = tuple(x.stride()) if item is None else _dense_like(x)
    reduction = Reduction(
        accumulator, item or x.element_size(), vector, MAX_THREADS // 2 if x.dtype is torch.complex128 else MAX_THREADS
    )
    across, taken = launches(
        tuple(x.shape),
        stride,
        x.storage_offset() % 4 if item is None else 0,
        _wrapped(dims, x.dim()),
        outputs,
        reduction,
        simulated().device.num_sms,
        simulated().device.threads_per_sm,
    )
    if not taken and not across:
        return
    accumulator_entry = scratch(across)
    for partials, semaphores in taken:
        staged = scratch(partials), scratch(semaphores)
        del staged
    del accumulator_entry


def _wrapped(dims: Dims, ndim: int) -> tuple[int, ...]:
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(ndim))
    if isinstance(dims, int):
        dims = (dims,)
    return tuple(sorted(d % ndim for d in dims)) if ndim else ()


def _dense_like(x: Tensor) -> tuple[int, ...]:
    """Strides of a dense copy that keeps the order of dimensions."""
    order = sorted(range(x.dim()), key=lambda d: (x.stride(d), -d))
    strides, step = [0] * x.dim(), 1
    for d in order:
        strides[d] = step
        step *= max(x.shape[d], 1)
    return tuple(strides)


def _accumulate(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which CUDA accumulates values of `dtype`."""
    return torch.float32 if dtype in HALF else dtype


def _reduce_to(x: Tensor, dims: Dims, result: torch.dtype, *, fused_vector: int | None = None) -> None:
    """Reduce `x` after casting it to the dtype of the result, unless it is a half reduced to float32."""
    fused = x.dtype in HALF and result is torch.float32
    if x.dtype is result or fused:
        # 16-bit inputs are loaded eight at a time where `fused_vector` does not say otherwise.
        vector = fused_vector or (8 if x.element_size() == 2 else 4)
        stage(x, dims, _accumulate(x.dtype).itemsize, (result.itemsize,), vector=vector)
    else:
        cast = copy_of(x, result.itemsize)
        stage(x, dims, _accumulate(result).itemsize, (result.itemsize,), item=result.itemsize)
        del cast


@hidden("prod", source="ReduceSumProdKernel.cu")
@hidden("sum", "nansum", source="ReduceSumProdKernel.cu, ReduceOps.cpp; recorded")
def _sum(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, **_: Any) -> Steps:
    """Input cast to the result's dtype (bool and small integers: int64), staging and semaphores."""
    yield
    _reduce_to(x, dim, dtype or (x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64))


@hidden("mean", source="ReduceMomentKernel.cu; recorded")
def _mean(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, **_: Any) -> Steps:
    """Input cast to the requested dtype, staging and semaphores."""
    yield
    _reduce_to(x, dim, dtype or x.dtype, fused_vector=4)


@hidden("norm", source="ReduceNormKernel.cu, ReduceOps.cpp")
@hidden("linalg_vector_norm", source="ReduceNormKernel.cu, LinearAlgebra.cpp; recorded (no staging over short rows)")
def _vector_norm(
    x: Tensor, order: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, **_: Any
) -> Steps:
    """Input cast to the requested dtype, staging and semaphores."""
    yield from _mean(x, dim, dtype=dtype)


@hidden("max", "min", source="ReduceMinValuesKernel.cu, ReduceMaxValuesKernel.cu; recorded")
def _extreme(x: Tensor, dim: Dims = None, keepdim: bool = False, **_: Any) -> Steps:
    """Staging and semaphores; an accumulator has 16 bytes if the index is requested too."""
    yield
    if isinstance(dim, int):
        stage(x, dim, WITH_INDEX, (x.element_size(), 8))
    elif dim is None:
        stage(x, None, x.element_size(), (x.element_size(),))


@hidden("amax", "amin", source="ReduceMaxValuesKernel.cu")
def _value(x: Tensor, dim: Dims = None, keepdim: bool = False, **_: Any) -> Steps:
    """Staging in the input's own dtype, and semaphores."""
    yield
    stage(x, dim, x.element_size(), (x.element_size(),))


@hidden("aminmax", source="ReduceMaxValuesKernel.cu")
def _both(x: Tensor, *, dim: int | None = None, keepdim: bool = False, **_: Any) -> Steps:
    """Staging of two values, and semaphores."""
    yield
    stage(x, dim, 2 * x.element_size(), (x.element_size(), x.element_size()))


@hidden("argmax", "argmin", source="ReduceArgMaxKernel.cu")
def _index(x: Tensor, dim: int | None = None, keepdim: bool = False, **_: Any) -> Steps:
    """Staging of values with their index, and semaphores."""
    yield
    stage(x, dim, WITH_INDEX, (8,))


@hidden("any", "all", source="ReduceLogicKernel.cu; recorded")
def _logical(x: Tensor, dim: Dims = None, keepdim: bool = False, **_: Any) -> Steps:
    """Staging of one byte an accumulator, and semaphores."""
    yield
    stage(x, dim, 1, (1,))


@hidden("var", "std", "var_mean", "std_mean", source="ReduceMomentKernel.cu, SharedReduceOps.h")
def _moments(x: Tensor, dim: Dims = None, *_: Any, **__: Any) -> Steps:
    """Staging of Welford's mean, squared deviation and two counts, and semaphores."""
    yield
    wide = _accumulate(x.dtype).itemsize
    stage(x, dim, 32 if wide == 8 else 16, (x.element_size(),), vector=2)


@hidden("count_nonzero", source="TensorAdvancedIndexing.cpp")
def _count_nonzero(x: Tensor, dim: Dims = None) -> Steps:
    """The comparison with zero as bool, this as int64, staging and semaphores."""
    different = scratch(x.numel())
    yield
    cast = copy_of(x, 8)
    stage(x, dim, 8, (8,), item=8)
    del cast, different


@hidden("_foreach_norm", source="ForeachReduceOp.cu")
def _foreach_norm(tensors: Sequence[Tensor], *_: Any, **__: Any) -> Steps:
    """For each tensor a float32 for every chunk of 65,536 elements that the largest tensor has."""
    yield
    chunks = max((math.ceil(t.numel() / 65_536) for t in tensors), default=0)
    scratch(4 * chunks * len(tensors))


@hidden("histc", source="SummaryOps.cu: _histc_cuda_template; measured on H200")
def _histogram(x: Tensor, bins: int = 100, low: float = 0, high: float = 0) -> Steps:
    """Take the least and the largest element where no range is given, and staging."""
    yield
    if low == high:
        element = scratch(x.element_size())
        stage(x, None, x.element_size(), (x.element_size(),))
        del element

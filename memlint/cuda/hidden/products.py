"""Rows of matrix products: copies of operands whose layout cuBLAS cannot read, and its workspaces."""

from functools import partial
from typing import Any

import torch

from memlint.accelerator.ledger import Entry
from memlint.cuda.hidden.table import Steps, copy_of, hidden
from memlint.cuda.kernels.host import has_fastest_dimension
from memlint.cuda.simulated import simulated

Tensor = torch.Tensor
_VERSIONS = "2.1 to 2.13"
MATRIX, HOPPER = 2, 9
LT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def _matrix_copy(x: Tensor) -> Entry | None:
    """Copy a matrix, or a batch of matrices, if neither dimension is contiguous in memory; else None."""
    is_dense = x.is_contiguous() and (x.dim() == 2 or all(x.stride()[-2:]))
    return None if is_dense or has_fastest_dimension(x) else copy_of(x)


def _product(first: int, end: int, *args: Any, fused: bool = False, **_: Any) -> Steps:
    """Register a product whose operands are the arguments from `first` up to, not including, `end`."""
    yield
    if not all(x.numel() for x in args[first:end]):
        return  # nothing is multiplied
    copies = [_matrix_copy(x) for x in reversed(args[first:end])]
    workspaces = simulated().workspaces
    (workspaces.product_with_bias if fused else workspaces.product)()
    del copies


_COPIES = "Copies of operands without a fastest dimension; the workspace of cuBLAS."
for _ops, _first, _end, _what, _source in (
    (("mm",), 0, 2, _COPIES, "Blas.cpp, cuBlasCommonArgs.h; recorded"),
    (("bmm",), 0, 2, _COPIES, "Blas.cpp (prepare_batch_matrix_for_cublas); recorded"),
    (("baddbmm", "baddbmm_"), 1, 3, "As mm.", "Blas.cpp"),
    (("addbmm", "addbmm_"), 1, 3, "As mm.", "Blas.cpp; measured"),
    (("_int_mm",), 0, 2, "As mm.", "Blas.cpp; measured"),
    (("mv",), 0, 1, "As mm.", "Blas.cpp"),
    (("addmv", "addmv_"), 1, 2, "As mm.", "Blas.cpp"),
    (("dot", "vdot"), 0, 0, "The workspace of cuBLAS.", "Blas.cpp"),
):
    hidden(*_ops, what=_what, source=_source, versions=_VERSIONS)(partial(_product, _first, _end))


@hidden("addmm", "addmm_", "_addmm_activation", source="Blas.cpp, CUDABlas.cpp; recorded", versions=_VERSIONS)
def _addmm(bias: Tensor, a: Tensor, b: Tensor, *_: Any, beta: float = 1, **__: Any) -> Steps:
    """Same as mm; with a bias vector it goes through cuBLASLt, which has a workspace of its own."""
    fused = bias.dim() == 1 and bias.is_contiguous() and beta == 1 and a.dtype in LT_DTYPES and min(b.shape) > 1
    return _product(0, 2, a, b, fused=fused and bias.shape[0] == b.shape[1])


@hidden("_scaled_mm", "_scaled_mm_v2", source="ScaledBlas.cpp, cuBlasCommonArgs.h", versions="2.10 to 2.13")
def _scaled(a: Tensor, b: Tensor, scale: Any, *_: Any, **__: Any) -> Steps:
    """Same as addmm with a bias; CUTLASS multiplies if scales are per row and the GPU is not Hopper."""
    scales = scale[0] if isinstance(scale, (list, tuple)) else scale
    of_rows = scales.dtype is torch.float32 and scales.dim() == MATRIX and scales.shape == (a.shape[0], 1) != (1, 1)
    if of_rows and simulated().device.capability[0] != HOPPER:
        yield
    else:
        yield from _product(0, 2, a, b, fused=True)

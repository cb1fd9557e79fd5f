"""Rows of matrix products: copies of operands that cuBLAS cannot read as they lie, and its workspaces."""

from __future__ import annotations

from typing import Any

import torch

from memlint.accelerator.ledger import Entry
from memlint.cuda.hidden.table import Steps, copy_of, hidden
from memlint.cuda.kernels.host import has_fastest_dimension
from memlint.cuda.simulated import simulated

Tensor = torch.Tensor
LT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def _matrix_copy(x: Tensor) -> Entry | None:
    """The copy of a matrix, or of matrices in a batch, of which neither dimension is the fastest; else None."""
    is_dense = x.is_contiguous() and (x.dim() == 2 or all(x.stride()[-2:]))
    return None if is_dense or has_fastest_dimension(x) else copy_of(x)


def _product(*operands: Tensor, fused: bool = False) -> Steps:
    yield
    copies = [_matrix_copy(x) for x in reversed(operands)]
    workspaces = simulated().workspaces
    (workspaces.product_with_bias if fused else workspaces.product)()
    del copies


@hidden("bmm", source="Blas.cpp (prepare_batch_matrix_for_cublas); recorded", versions="2.1 to 2.13")
@hidden("mm", source="Blas.cpp, cuBlasCommonArgs.h; recorded", versions="2.1 to 2.13")
def _mm(a: Tensor, b: Tensor, *_: Any, **__: Any) -> Steps:
    """Copies of operands without a fastest dimension; the workspace of cuBLAS."""
    return _product(a, b)


@hidden("baddbmm", "baddbmm_", source="Blas.cpp", versions="2.1 to 2.13")
def _baddbmm(c: Tensor, a: Tensor, b: Tensor, **_: Any) -> Steps:
    """As mm."""
    return _product(a, b)


@hidden("addmm", "addmm_", "_addmm_activation", source="Blas.cpp, CUDABlas.cpp; recorded", versions="2.1 to 2.13")
def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, **_: Any) -> Steps:
    """As mm; with a bias vector through cuBLASLt, which has a workspace of its own."""
    fused = bias.dim() == 1 and bias.is_contiguous() and beta == 1 and a.dtype in LT_DTYPES and min(b.shape) > 1
    return _product(a, b, fused=fused and bias.shape[0] == b.shape[1])


@hidden("mv", source="Blas.cpp", versions="2.1 to 2.13")
def _mv(a: Tensor, x: Tensor, **_: Any) -> Steps:
    """As mm."""
    return _product(a)


@hidden("addmv", "addmv_", source="Blas.cpp", versions="2.1 to 2.13")
def _addmv(c: Tensor, a: Tensor, x: Tensor, **_: Any) -> Steps:
    """As mm."""
    return _product(a)


@hidden("dot", "vdot", source="Blas.cpp", versions="2.1 to 2.13")
def _dot(*_: Any) -> Steps:
    """The workspace of cuBLAS."""
    return _product()

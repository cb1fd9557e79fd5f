"""Rows of decompositions and solvers on the host: their tensors, and LAPACK's workspaces."""

import math
from typing import Any

import torch

from memlint.accelerator.device import scratch
from memlint.cuda.hidden.table import Steps, copy_of, hidden

Tensor = torch.Tensor
INT = 4
"""Bytes of an int32, LAPACK's integer."""
BLOCK = 32
"""LAPACK's block size: an optimal workspace has about this many numbers a row (queried from ilaenv at run time)."""


def num_matrices(x: Tensor) -> int:
    """Return the number of matrices in a batch."""
    return math.prod(x.shape[:-2])


@hidden("linalg_matrix_exp", source="LinearAlgebra.cpp: compute_T18_scale_square; measured", devices="host")
def _matrix_exp(x: Tensor) -> Steps:
    """Powers and sums of the Taylor polynomial; its degree, 1 to 18, depends on norms."""
    yield
    nbytes = x.numel() * x.element_size()
    scratch(11 * nbytes, (2 * nbytes, 13 * nbytes))


@hidden("linalg_inv_ex", source="BatchLinearAlgebra.cpp: linalg_solve_ex of the identity", devices="host")
def _inverse(x: Tensor, **_: Any) -> Steps:
    """The decomposition and its pivots."""
    yield
    factors, pivots = copy_of(x), scratch(INT * num_matrices(x) * x.shape[-1])
    del factors, pivots


@hidden("_linalg_det", "_linalg_slogdet", source="BatchLinearAlgebra.cpp: lu_det_P; ReduceOps.cpp", devices="host")
def _determinant(x: Tensor) -> Steps:
    """The order of the rows, a mask of the rows that changed places, and this mask as int64."""
    yield
    n = x.shape[-1]
    in_order, changed, cast = (scratch(nbytes) for nbytes in (INT * n, num_matrices(x) * n, 8 * num_matrices(x) * n))
    del in_order, changed, cast


@hidden("_linalg_solve_ex", source="BatchLinearAlgebra.cpp: linalg_lu_solve", devices="host")
def _solve(x: Tensor, b: Tensor, **_: Any) -> Steps:
    """A copy of a right-hand side that is a vector."""
    yield
    if b.shape == x.shape[:-1]:
        copy_of(b)


@hidden("linalg_lu", source="BatchLinearAlgebra.cpp: linalg_lu_factor_ex, lu_unpack", devices="host")
def _lu(x: Tensor, **_: Any) -> Steps:
    """The decomposition and its pivots, then the memory of unpacking."""
    yield
    pivots, factors = scratch(INT * num_matrices(x) * (min(x.shape[-2:]) + 1)), copy_of(x)
    del factors
    take_to_unpack(x)
    del pivots


@hidden("lu_unpack", source="BatchLinearAlgebra.cpp, TriangularOps.cpp: a result in columns is copied", devices="host")
def _unpack(x: Tensor, *_: Any, **__: Any) -> Steps:
    """The permutation, and a copy of the triangle unless it is a whole matrix."""
    yield
    take_to_unpack(x)


def take_to_unpack(x: Tensor) -> None:
    """Allocate and free the triangle of a matrix that is not square, and the order of its rows."""
    rows, columns = x.shape[-2:]
    if rows != columns:
        scratch(num_matrices(x) * min(rows, columns) ** 2 * x.element_size())
    scratch(8 * (num_matrices(x) + 1) * rows)


@hidden("_linalg_svd", "_cholesky_solve_helper", source="BatchLinearAlgebra.cpp", devices="host")
def _overwritten(x: Tensor, a: Tensor | bool = False, *_: Any, **__: Any) -> Steps:
    """A copy of the matrix, which LAPACK overwrites."""
    yield
    copy_of(a if isinstance(a, torch.Tensor) else x)


@hidden("_linalg_eigh", source="BatchLinearAlgebraKernel.cpp: syevd; LAPACK's manual", devices="host")
def _eigh(x: Tensor, *_: Any, compute_v: bool = True, **__: Any) -> Steps:
    """Workspaces of 1 + 6 n + 2 n^2 numbers and 3 + 5 n integers; without vectors a copy of the matrix and less."""
    yield
    n = x.shape[-1]
    copy = None if compute_v else copy_of(x)
    numbers = 1 + 6 * n + 2 * n * n if compute_v else 2 * n + 1
    work = scratch(x.element_size() * numbers, (0, x.element_size() * (numbers + BLOCK * n)))
    integers = scratch(INT * (3 + 5 * n if compute_v else 1))
    del integers, work, copy


@hidden("linalg_eig", "_linalg_eigvals", source="BatchLinearAlgebra.cpp: geev; measured", devices="host")
def _eig(x: Tensor, *_: Any, **__: Any) -> Steps:
    """A check for finite numbers, then a copy of the matrix, vectors of real numbers and LAPACK's workspace."""
    magnitudes, finite = copy_of(x), scratch(3 * x.numel())
    del magnitudes, finite
    yield
    n = x.shape[-1]
    values, copy, vectors = scratch(2 * num_matrices(x) * n * x.element_size()), copy_of(x), copy_of(x)
    numbers = (2 + BLOCK) * n + 1
    work = scratch(x.element_size() * numbers, (0, 2 * x.element_size() * numbers))
    del work, vectors, copy, values


@hidden("linalg_ldl_factor_ex", source="BatchLinearAlgebraKernel.cpp: sytrf; measured", devices="host")
def _ldl(x: Tensor, **_: Any) -> Steps:
    """LAPACK's workspace."""
    yield
    numbers = x.shape[-1] * x.element_size()
    scratch(24 * numbers, (0, 2 * BLOCK * numbers))


@hidden("linalg_ldl_solve", source="BatchLinearAlgebra.cpp: linalg_ldl_solve_out; measured", devices="any")
def _ldl_solve(_factors: Tensor, pivots: Tensor, *_: Any, **__: Any) -> Steps:
    """A check that the pivots are row numbers: their magnitudes, and a mask."""
    yield
    magnitudes, mask = copy_of(pivots), scratch(pivots.numel())
    del mask, magnitudes


@hidden("linalg_householder_product", source="BatchLinearAlgebraKernel.cpp: orgqr; measured", devices="host")
def _householder(x: Tensor, *_: Any) -> Steps:
    """LAPACK's workspace."""
    yield
    numbers = x.shape[-1] * x.element_size()
    scratch(numbers, (numbers, BLOCK * numbers))


@hidden("linalg_lstsq", source="BatchLinearAlgebra.cpp, BatchLinearAlgebraKernel.cpp; LAPACK's manual", devices="host")
def _lstsq(x: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Steps:
    """A copy of the matrix, the order of batches and LAPACK's workspace, less the residuals, which come later."""
    yield
    n, item = x.shape[-1], x.element_size()
    has_residuals = x.shape[-2] > n and driver != "gelsy"
    residuals = item * (b.numel() // max(x.shape[-2], 1) if has_residuals else 0)
    copy, order = copy_of(x), scratch(max((INT + 16) * num_matrices(x) - residuals, 0))
    most = 62 * n + 80 * n + n * b.shape[-1] + 26 * 26 if driver in ("gelsd", "gelss") else BLOCK * 2 * n
    work = scratch(4 * n * item, (0, most * item))
    del work, order, copy

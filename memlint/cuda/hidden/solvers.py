"""Rows of decompositions and solvers on the GPU: workspaces of cuBLAS and cuSOLVER.

The tensors are those of aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp. cuSOLVER names the sizes of its
workspaces at run time only: those here were measured with CUDA 13.0 on H200 for matrices of 1 to 2,048 rows in float32,
and the bounds hold all of them.
"""

from typing import Any

import torch

from memlint.accelerator.device import scratch
from memlint.accelerator.ledger import Entry
from memlint.cuda.hidden.linear_algebra import INT, num_matrices, take_to_unpack
from memlint.cuda.hidden.table import Steps, copy_of, hidden
from memlint.cuda.simulated import simulated

Tensor = torch.Tensor
POINTER = 8
"""Bytes of an address, of which batched kernels take one a matrix."""
VERY_FEW_ROWS = 8
"""Rows from which cuSOLVER solves for a single matrix and one column, without memory of PyTorch's."""
FEW_ROWS = 32
"""Rows up to which batched kernels solve and decompose; above, one matrix after another, or by triangles."""
KIB, MIB = 1 << 10, 1 << 20
_MEASURED = "measured on H200"


def _nbytes(x: Tensor) -> int:
    """Bytes of one matrix."""
    return x.shape[-2] * x.shape[-1] * x.element_size()


def _work(nbytes: int, low: int = 0, high: int = 0) -> Entry:
    return scratch(nbytes, (min(low, nbytes), max(high, nbytes)))


def _pointers(batch: int, number: int) -> list[Entry]:
    """Addresses of the matrices of a batch, for a kernel of cuBLAS."""
    taken = [scratch(POINTER * batch) for _ in range(number)]
    simulated().workspaces.product()
    return taken


def _factor(x: Tensor) -> None:
    """Decompose into triangles: getrf of cuSOLVER for a single matrix, of cuBLAS for several."""
    batch, n = num_matrices(x) if x.numel() else 0, x.shape[-1]
    if batch == 1:
        _work(max(768, 4 * n * x.element_size() + 256), 256, 8 * n * x.element_size() + 768)
    elif batch:
        _pointers(batch, 1 if x.shape[-2] == n else 0)


def _solve_factored(x: Tensor, b: Tensor) -> None:
    """Solve with triangles: small matrices by cuBLAS's getrs, others by order of rows and two triangular solves."""
    batch, n = num_matrices(x), x.shape[-1]
    one_column = b.shape == x.shape[:-1] or b.shape[-1] == 1
    if not batch or not n or (batch == 1 and VERY_FEW_ROWS < n <= FEW_ROWS and one_column):
        return
    if n <= FEW_ROWS:
        _pointers(batch, 2)
        return
    order = scratch(8 * n), scratch(8 * batch * n), scratch(8 * batch * n)
    permuted = copy_of(b)
    _pointers(batch, 2)
    del permuted, order


@hidden("linalg_lu_factor_ex", source=_MEASURED)
def _lu_factor(x: Tensor, **_: Any) -> Steps:
    """The workspace of the decomposition."""
    yield
    _factor(x)


@hidden("linalg_lu_solve", source=_MEASURED)
def _lu_solve(factors: Tensor, pivots: Tensor, b: Tensor, **_: Any) -> Steps:
    """The memory of solving with triangles."""
    yield
    _solve_factored(factors, b)


@hidden("linalg_inv_ex", "_linalg_solve_ex", source=_MEASURED)
def _solve(x: Tensor, b: Tensor | None = None, **_: Any) -> Steps:
    """The workspace of the decomposition, then the memory of solving; for an inverse triangles and pivots too."""
    yield
    taken = [copy_of(x), scratch(INT * num_matrices(x) * x.shape[-1])] if b is None else []
    if b is not None and b.shape == x.shape[:-1]:
        taken = [copy_of(b)]  # a vector
    _factor(x)
    _solve_factored(x, x if b is None else b)
    del taken


@hidden("_linalg_det", "_linalg_slogdet", source=f"BatchLinearAlgebra.cpp: lu_det_P; {_MEASURED}")
def _determinant(x: Tensor) -> Steps:
    """As on the host, and the success, the decomposition's workspace and the number of rows that changed places."""
    yield
    batch, n = num_matrices(x), x.shape[-1]
    success = scratch(INT * batch)
    _factor(x)
    numbers = [scratch(INT * n), scratch(batch * n), scratch(8 * batch), scratch(8 * batch * n)]
    del numbers, success


@hidden("linalg_solve_triangular", "triangular_solve", source=_MEASURED)
def _solve_triangular(*operands: Any, **_: Any) -> Steps:
    """Addresses of the matrices, and the workspace of cuBLAS."""
    yield
    if all(x.numel() for x in operands[:2]):
        _pointers(num_matrices(operands[0]), 2)


@hidden("cholesky_inverse", source=_MEASURED)
def _cholesky_inverse(a: Tensor, *_: Any, **__: Any) -> Steps:
    """A copy of the matrix; for a batch the workspace of cuBLAS."""
    yield from _cholesky_solve(a, a)


@hidden("_cholesky_solve_helper", source=_MEASURED)
def _cholesky_solve(b: Tensor, a: Tensor, *_: Any) -> Steps:
    """A copy of the matrix; for a batch the workspace of cuBLAS."""
    yield
    success, copy = scratch(INT if num_matrices(a) == 1 else 0), copy_of(a)
    if num_matrices(a) > 1:
        simulated().workspaces.product()
    del copy, success


def _reflectors_to_matrix(x: Tensor) -> None:
    """Memory of orgqr, one matrix after another."""
    rows = x.shape[-2]
    _work(128 * KIB + max(1152, 128 * rows), 128 * KIB, 128 * KIB + 1152 + 1536 * rows)


def _reflect(x: Tensor) -> Entry:
    """Decompose by reflections: geqrf of cuBLAS for a batch of matrices, else of cuSOLVER; returns their scales."""
    batch, least = num_matrices(x), min(x.shape[-2:])
    scales = scratch(x.element_size() * batch * least)
    if batch > 1:
        _pointers(batch, 2)
        return scales
    success, nbytes = scratch(INT), 3 * MIB + 128 + max(0, 1024 * x.element_size() * least - MIB)
    _work(nbytes, 0, 2 * nbytes)
    del success
    return scales


@hidden("linalg_qr", source=_MEASURED)
def _qr(x: Tensor, mode: str = "reduced") -> Steps:
    """The reflections' scales and workspace, then that of orgqr."""
    yield
    if x.numel():
        scales = _reflect(x)
        success = scratch(INT)
        if mode != "r":
            _reflectors_to_matrix(x)
        del success, scales


@hidden("linalg_lstsq", source=_MEASURED)
def _least_squares(x: Tensor, *_: Any, **__: Any) -> Steps:
    """A copy of the matrix, and reflections."""
    yield
    if x.numel():
        copy = copy_of(x)
        scales = _reflect(x)
        del scales, copy


@hidden("linalg_matrix_exp", source=f"LinearAlgebra.cpp: compute_T18_scale_square; {_MEASURED}")
def _matrix_exp(x: Tensor) -> Steps:
    """Powers and sums of the Taylor polynomial; its degree, 1 to 18, depends on norms; the workspace of cuBLAS."""
    yield
    simulated().workspaces.product()
    nbytes = x.numel() * x.element_size()
    scratch(12 * nbytes, (2 * nbytes, 13 * nbytes))


@hidden("linalg_lu", source=f"BatchLinearAlgebra.cpp: linalg_lu_factor_ex, lu_unpack; {_MEASURED}")
def _lu(x: Tensor, **_: Any) -> Steps:
    """The decomposition, its pivots and workspace, then the memory of unpacking."""
    yield
    pivots, factors = scratch(INT * num_matrices(x) * (min(x.shape[-2:]) + 1)), copy_of(x)
    _factor(x)
    del factors
    take_to_unpack(x)
    del pivots


@hidden("linalg_householder_product", source=_MEASURED)
def _householder(x: Tensor, *_: Any) -> Steps:
    """The success, and the workspace of orgqr."""
    yield
    if x.numel():
        success = scratch(INT)
        _reflectors_to_matrix(x)
        del success


@hidden("_linalg_eigh", source=_MEASURED)
def _eigh(x: Tensor, *_: Any, compute_v: bool = True, **__: Any) -> Steps:
    """Without vectors a copy of the matrix; the success, and workspaces by size."""
    yield
    batch, n = num_matrices(x), x.shape[-1]
    if not batch or not n:
        return
    copy = None if compute_v else copy_of(x)
    success = scratch(INT * batch)
    nbytes = _eigh_workspace(batch, n, _nbytes(x))
    _work(nbytes, nbytes // 2, nbytes + nbytes // 4)
    del success, copy


def _eigh_workspace(batch: int, n: int, nbytes: int) -> int:
    """Up to 32 rows a part for each matrix, to 512 a copy of one and more, above four copies."""
    if n <= FEW_ROWS:
        return batch * (256 * KIB + 3168 * n) + (176 if batch == 1 else 0)
    return nbytes + 148 * n if n <= FEW_ROWS * 16 else 4 * nbytes + 572 * n


@hidden("_linalg_svd", source=_MEASURED)
def _svd(x: Tensor, *_: Any, **__: Any) -> Steps:
    """The success, a copy of the matrix, and a workspace of two copies of one matrix and more."""
    yield
    if x.numel():
        success, copy = scratch(INT * num_matrices(x)), copy_of(x)
        nbytes = max(3968, 2 * _nbytes(x) + 288 * max(x.shape[-2:]))
        _work(nbytes, 0, nbytes + 64 * max(x.shape[-2:]))
        del copy, success

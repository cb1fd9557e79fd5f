"""Products of sparse matrices: the memory that CUDA allocates around cuSPARSE.

From aten/src/ATen/native/sparse/cuda/{SparseCUDATensorMath,SparseBlasImpl}.cu and SparseMatMul.cu. The buffers that
cuSPARSE asks for are not modelled.
"""

from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload

from memlint.accelerator import state, values
from memlint.accelerator.device import allocate, contiguous
from memlint.accelerator.registration import overload
from memlint.accelerator.sparse import COMPRESSED, COO, become, compressed, coo, launched, parts_of, sparse_kernel
from memlint.accelerator.sparse_kernels import coalesced_form, compressed_of, num_elements, pattern, written

Tensor = torch.Tensor
aten = torch.ops.aten


def _assume_workspace() -> None:
    state.assume("cuSPARSE's own buffers for products of sparse matrices are not counted")


def _by(x: Tensor) -> str:
    return "x".join(map(str, x.shape))


def _check_product(x: Tensor, y: Tensor) -> None:
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({_by(x)} and {_by(y)})")


def _sparse_times_dense(
    op: OpOverload, added: Tensor, sparse: Tensor, dense: Tensor, *, out: Tensor | None = None, **_: Any
) -> Tensor:
    """COO times dense: cuSPARSE gets the indices as CSR of int32, and the product is made column by column."""
    out = added if op is aten.addmm_.default else out
    if sparse.layout is not torch.sparse_coo or dense.layout is not torch.strided:
        raise RuntimeError(
            f"addmm: expected 'mat1' sparse and 'mat2' dense, but got {sparse.layout} and {dense.layout}"
        )
    _check_product(sparse, dense)
    rows, columns = sparse.shape[0], dense.shape[1]
    torch.broadcast_shapes(added.shape, (rows, columns))
    if out is not None and out is not added:
        aten.resize_.default(out, (rows, columns))
    sparse = coalesced_form(sparse)
    count = num_elements(sparse)
    _assume_workspace()
    with launched(op, added, sparse, dense) as finish:
        result = contiguous((rows, columns), added.dtype) if out is None else out
        pointers = allocate((rows + 1,), (1,), torch.int32)
        allocate((count,), (1,), torch.int32)  # the rows as int32, until they are counted
        column_indices = allocate((count,), (1,), torch.int32)
        turned = None
        if not (result.stride(0) == 1 and result.stride(1) == rows):
            turned = allocate((rows, columns), (1, rows), result.dtype)
        copied = None
        by_columns = dense.stride(0) == 1 and dense.stride(1) == dense.shape[0]
        padded = dense.stride(1) == 1 and dense.stride(0) != dense.shape[1]
        if count and not by_columns and not padded and not dense.is_contiguous():
            copied = contiguous(dense.shape, dense.dtype)
        del pointers, column_indices, turned, copied
        values.forget(result)
        return finish(result)


for _name in ("addmm", "addmm.out", "addmm_"):
    sparse_kernel(COO, _name)(partial(_sparse_times_dense, overload(_name)))


@sparse_kernel(COO, "bmm")
def _bmm(sparse: Tensor, dense: Tensor) -> Tensor:
    if sparse.layout is not torch.sparse_coo or dense.layout is not torch.strided:
        raise RuntimeError(f"bmm: expected a sparse and a dense tensor, but got {sparse.layout} and {dense.layout}")
    batch, rows, _ = sparse.shape
    if dense.dim() != 3 or dense.shape[0] != batch or dense.shape[1] != sparse.shape[2]:
        raise RuntimeError(f"bmm: sizes {list(sparse.shape)} and {list(dense.shape)} do not match")
    columns = dense.shape[2]
    sparse = coalesced_form(sparse)
    _assume_workspace()
    with launched(aten.bmm.default, sparse, dense) as finish:
        result = allocate((batch, rows, columns), (rows * columns, 1, rows), dense.dtype)
        allocate((2 * num_elements(sparse),), (1,), torch.int32)  # rows and columns of every matrix
        return finish(result)


def _product_nnz(x: Tensor, y: Tensor) -> int:
    """Return the number of elements of the product of two sparse matrices."""
    known_x, known_y = pattern(x), pattern(y)
    if known_x is not None and known_y is not None:
        return (known_x @ known_y)._nnz()
    state.assume(
        f"the product of sparse matrices of shapes {list(x.shape)} and {list(y.shape)} is taken as full as it can be"
    )
    rows, columns = x.shape[0], y.shape[1]
    return min(rows * columns, num_elements(x) * min(columns, num_elements(y)))


@sparse_kernel(COO, "_sparse_sparse_matmul")
def _sparse_times_sparse(x: Tensor, y: Tensor) -> Tensor:
    _check_product(x, y)
    x, y = coalesced_form(x), coalesced_form(y)
    count = _product_nnz(x, y)
    _assume_workspace()
    with launched(aten._sparse_sparse_matmul.default, x, y) as finish:
        x_csr = allocate((x.shape[0] + 1 + num_elements(x),), (1,), torch.int32)
        y_csr = allocate((y.shape[0] + 1 + num_elements(y),), (1,), torch.int32)
        new_indices, new_values = contiguous((2, count), torch.int64), contiguous((count,), parts_of(x)[1].dtype)
        result = coo(new_indices, new_values, (x.shape[0], y.shape[1]), coalesced=True)
        del x_csr, y_csr
        return finish(result)


@sparse_kernel(COMPRESSED, "addmm")
def _addmm_compressed_new(x: Tensor, a: Tensor, b: Tensor, **_: Any) -> Any:
    if x.layout is torch.strided:
        return _addmm_compressed(x, a, b, out=contiguous((a.shape[0], b.shape[1]), x.dtype))
    _check_product(a, b)
    _assume_workspace()
    count = _product_nnz(a, b)
    with launched(aten.addmm.default, a, b) as finish:
        return finish(compressed_of(x, (a.shape[0], b.shape[1]), count, x.dtype))


@sparse_kernel(COMPRESSED, "addmm.out")
def _addmm_compressed(x: Tensor, a: Tensor, b: Tensor, *, out: Tensor, **_: Any) -> Tensor:
    if out.layout is not torch.strided:
        return become(out, _addmm_compressed_new(x, a, b))
    _check_product(a, b)
    shape = (a.shape[0], b.shape[1])
    _assume_workspace()
    if out is not x and out.shape != shape:
        aten.resize_.default(out, shape)
    return written(aten.addmm.out, out, x, a, b)


@sparse_kernel(COMPRESSED, "addmv.out")
def _addmv_compressed(x: Tensor, a: Tensor, b: Tensor, *, out: Tensor, **_: Any) -> Tensor:
    if a.dim() != 2 or b.dim() != 1 or a.shape[1] != b.shape[0]:
        raise RuntimeError(f"size mismatch, got input ({a.shape[0]}), mat ({_by(a)}), vec ({b.shape[0]})")
    if out is not x and out.shape != a.shape[:1]:
        aten.resize_.default(out, a.shape[:1])
    return written(aten.addmv.out, out, x, a, b)


@sparse_kernel(COMPRESSED, "sparse_sampled_addmm")
def _sampled_addmm(x: Tensor, a: Tensor, b: Tensor, **_: Any) -> Tensor:
    _check_product(a, b)
    _assume_workspace()
    with launched(aten.sparse_sampled_addmm.default, x, a, b) as finish:
        return finish(compressed(x.layout, [contiguous(p.shape, p.dtype) for p in parts_of(x)], x.shape))

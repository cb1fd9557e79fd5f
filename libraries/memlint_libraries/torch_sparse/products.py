"""Products of torch_sparse's matrices with dense ones and with each other.

matmul.py, spmm.py and spspmm.py; csrc/spmm.cpp and csrc/cuda/spmm_cuda.cu. What lies on the host has its values.
"""

from collections.abc import Mapping
from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.accelerator.private import indices_of, values_of
from memlint.libraries.library import launch
from memlint_libraries.torch_sparse.storage import library
from memlint_libraries.torch_sparse.tensor import SparseTensor, provides

Tensor = torch.Tensor


def _product(rowptr: Tensor, col: Tensor, value: Tensor | None, matrix: Tensor, reduce: str) -> tuple[Tensor, ...]:
    """The output of the kernel, and of `min` and `max` the positions."""
    library.assume()
    matrix = matrix.contiguous()
    out = matrix.new_empty((*matrix.shape[:-2], len(rowptr) - 1, matrix.shape[-1]))
    positions = (torch.full_like(out, len(col), dtype=rowptr.dtype),) if reduce in {"min", "max"} else ()
    launch((rowptr, col, value, matrix), (out, *positions))
    return out, *positions


class _Summed(torch.autograd.Function):
    """The sum or mean of each row's: saves all that backward could need, the matrix included."""

    @staticmethod
    def forward(ctx: Any, value: Tensor | None, matrix: Tensor, reduce: str, parts: Mapping[str, Any]) -> Any:
        ctx.reduce, ctx.names = reduce, tuple(parts)
        ctx.save_for_backward(value, matrix, *parts.values())
        return _product(parts["rowptr"], parts["col"], value, matrix, reduce)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        value, matrix, *rest = ctx.saved_tensors
        parts = dict(zip(ctx.names, rest, strict=True))
        of_value = of_matrix = None
        if ctx.needs_input_grad[0]:
            matrix_, grad_ = matrix.contiguous(), grad.contiguous()
            of_value = grad.new_zeros(len(parts["row"]))
            launch((parts["row"], parts["rowptr"], parts["col"], matrix_, grad_), (of_value,))
        if ctx.needs_input_grad[1]:
            order = parts["csr2csc"]
            row, factor = parts["row"], value
            if ctx.reduce == "mean":
                row = row.index_select(0, order)
                factor = parts["rowcount"].index_select(0, row).to(matrix.dtype)
                factor.masked_fill_(factor < 1, 1)
                factor = factor.pow_(-1) if value is None else value.index_select(0, order).div(factor)
            else:
                factor = None if value is None else value.index_select(0, order)
                row = row.index_select(0, order)
            of_matrix = _product(parts["colptr"], row, factor, grad, "sum")[0]
        return of_value, of_matrix, None, None


class _Picked(torch.autograd.Function):
    """The least or the largest of each row's: saves columns, values, the matrix and positions."""

    @staticmethod
    def forward(ctx: Any, value: Tensor | None, matrix: Tensor, rowptr: Tensor, col: Tensor, reduce: str) -> Any:
        out, positions = _product(rowptr, col, value, matrix, reduce)
        ctx.save_for_backward(value, matrix, col, positions)
        ctx.mark_non_differentiable(positions)
        return out, positions

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        value, matrix, col, positions = ctx.saved_tensors
        is_empty = positions == len(col)
        positions = positions.masked_fill(is_empty, 0)
        of_value = of_matrix = None
        if ctx.needs_input_grad[0]:
            places = col.index_select(0, positions.flatten()).view_as(positions)
            out = matrix.gather(-2, places).mul_(grad).masked_fill_(is_empty, 0)
            of_value = torch.zeros_like(value).scatter_add_(0, positions.flatten(), out.flatten())
            del places, out
        if ctx.needs_input_grad[1]:
            factor = grad
            if value is not None:
                factor = value.index_select(0, positions.flatten()).view_as(positions).mul_(grad)
            factor.masked_fill_(is_empty, 0)
            places = col.index_select(0, positions.flatten()).view_as(positions)
            of_matrix = torch.zeros_like(matrix).scatter_add_(-2, places, factor)
        return of_value, of_matrix, None, None, None


def _on_host(source: SparseTensor, other: Tensor, reduce: str) -> Tensor:
    """The values of a product, and its gradients, by PyTorch's ops."""
    row, col, value = source.coo()
    parts = other.index_select(-2, col)
    parts = parts if value is None else parts * value.to(other.dtype).unsqueeze(-1)
    rows = row.unsqueeze(-1).expand_as(parts)
    out = parts.new_zeros((*other.shape[:-2], source.size(0), other.shape[-1]))
    return out.scatter_reduce(-2, rows, parts, _REDUCTIONS[reduce], include_self=False)


_REDUCTIONS = {"sum": "sum", "add": "sum", "mean": "mean", "min": "amin", "max": "amax"}


def _spmm(src: SparseTensor, other: Tensor, reduce: str = "sum") -> Any:
    """The product with a dense matrix [..., columns, features], a reduction over each row's entries."""
    if reduce not in _REDUCTIONS:
        raise ValueError(reduce)
    if not is_virtual(other):
        return _on_host(src, other, reduce)
    kept = src.storage
    rowptr, col, value = src.csr()
    value = None if value is None else value.to(other.dtype)
    if reduce in {"min", "max"}:
        return _Picked.apply(value, other, rowptr, col, reduce)[0]  # type: ignore[no-untyped-call]
    row = kept.row() if other.requires_grad or (value is not None and value.requires_grad) else kept._row
    of_mean = {"rowcount": kept.rowcount() if other.requires_grad else kept._rowcount} if reduce == "mean" else {}
    order = kept.csr2csc() if other.requires_grad else kept._csr2csc
    pointers = kept.colptr() if other.requires_grad else kept._colptr
    parts = {"row": row, "rowptr": rowptr, "col": col, **of_mean, "csr2csc": order, "colptr": pointers}
    reduce = "sum" if reduce == "add" else reduce
    return _Summed.apply(value, other, reduce, parts)  # type: ignore[no-untyped-call]


def _spspmm(src: SparseTensor, other: SparseTensor, reduce: str = "sum") -> SparseTensor:
    """The product of two sparse matrices, by PyTorch."""
    if reduce not in {"sum", "add"}:
        raise NotImplementedError if reduce in _REDUCTIONS else ValueError(reduce)
    product = torch.sparse.mm(src.to_torch_sparse_coo_tensor(), other.to_torch_sparse_coo_tensor())
    row, col = indices_of(product)
    value = values_of(product) if src.has_value() or other.has_value() else None
    sizes = product.shape[0], product.shape[1]
    return SparseTensor(row, None, col, value, sizes, is_sorted=True, trust_data=True)


@provides("matmul", "matmul")
def matmul(src: SparseTensor, other: Any, reduce: str = "sum") -> Any:
    """The product with a dense matrix or a sparse one."""
    return _spspmm(src, other, reduce) if isinstance(other, SparseTensor) else _spmm(src, other, reduce)


library.modules["torch_sparse.matmul"].update(spmm=_spmm, spspmm=_spspmm)
for _name, _method in {"spmm": _spmm, "spspmm": _spspmm, "__matmul__": matmul}.items():
    setattr(SparseTensor, _name, _method)

"""torch_sparse 0.6.18: sums of matrices, matrices put together, and rows, columns and entries picked of one.

torch_sparse/add.py, cat.py, narrow.py, select.py, masked_select.py, index_select.py, and tensor.py:151 and :624. How
many entries a part of a matrix has, values say: on the GPU they are taken to lie evenly among rows and columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.libraries import torch_sparse_storage
from memlint.libraries.library import assume_once
from memlint.libraries.torch_scatter import gathered
from memlint.libraries.torch_sparse import SparseTensor, of_each_entry
from memlint.libraries.torch_sparse_storage import SparseStorage, holding

Tensor = torch.Tensor
library = torch_sparse_storage.library
_provides = library.provides("torch_sparse")


@_provides
def add(src: SparseTensor, other: Any) -> SparseTensor:
    """Values and a number of each row [rows, 1] or column [1, columns], or entries of both matrices."""
    if isinstance(other, SparseTensor):
        first, second = src.storage.value(), other.storage.value()
        row = torch.cat([src.storage.row(), other.storage.row()])
        col = torch.cat([src.storage.col(), other.storage.col()])
        value = None if first is None or second is None else torch.cat([first, second])
        sizes = max(src.size(0), other.size(0)), max(src.size(1), other.size(1))
        return SparseTensor(row, None, col, value, sizes).coalesce("sum")
    more, value = of_each_entry(src, other), src.storage.value()
    return src.set_value(more.add_(1) if value is None else more.to(value.dtype).add_(value))


def eye(m: int, dtype: torch.dtype | None = None, device: Any = None) -> tuple[Tensor, Tensor]:
    """Places [2, m] and values of ones on the diagonal."""
    row = torch.arange(m, dtype=torch.long, device=device)
    return torch.stack([row, row]), torch.ones(m, dtype=dtype, device=device)


_provides(eye)


def _eye(
    rows: int, columns: int | None = None, has_value: bool = True, dtype: torch.dtype | None = None,
    device: Any = None, fill_cache: bool = False,
) -> SparseTensor:  # fmt: skip
    """Ones on the diagonal."""
    columns = rows if columns is None else columns
    row = torch.arange(min(rows, columns), device=device)
    rowptr = torch.arange(rows + 1, device=row.device)
    rowptr[columns + 1 :] = columns
    value = torch.ones(len(row), dtype=dtype, device=row.device) if has_value else None
    made = SparseTensor(row, rowptr, row, value, (rows, columns), is_sorted=True)
    return made.fill_cache_() if fill_cache else made


@_provides
def cat(tensors: Sequence[SparseTensor], dim: Any) -> SparseTensor:
    """Matrices below one another (0), beside one another (1), or both (`(0, 1)`)."""
    dims = {dim + tensors[0].dim() if dim < 0 else dim} if isinstance(dim, int) else set(dim)
    values = [each.storage.value() for each in tensors]
    value = None if any(each is None for each in values) else torch.cat(values, dim=max(0, min(dims) - 1))  # type: ignore[arg-type]
    if min(dims) > 1:
        return tensors[0].set_value(value)
    sizes = [[each.size(n) for each in tensors] for n in range(2)]
    before = [[sum(each[:n]) if axis in dims else 0 for n in range(len(tensors))] for axis, each in enumerate(sizes)]
    whole = [sum(each) if axis in dims else max(each) for axis, each in enumerate(sizes)]
    places: list[Tensor] = []
    for axis in range(2):
        numbers = [each.storage.col() if axis else each.storage.row() for each in tensors]
        if axis in dims:
            numbers = [each + start for each, start in zip(numbers, before[axis], strict=True)]
        places.append(torch.cat(numbers))
    row, col = places
    return SparseTensor(row, None, col, value, (whole[0], whole[1]), is_sorted=0 in dims)


def _share(src: SparseTensor, picked: Tensor, number: int, of: int) -> int | None:
    """Entries of so many rows or columns: on the host these are counted."""
    if not is_virtual(picked):
        return None
    assume_once("entries of torch_sparse are taken to lie evenly among rows and columns")
    return src.nnz() * number // max(of, 1)


def _repeated(counts: Tensor, number: int | None) -> Tensor:
    return torch.arange(len(counts), device=counts.device).repeat_interleave(counts, output_size=number)


@_provides
def index_select(src: SparseTensor, dim: int, idx: Tensor) -> SparseTensor:
    """Rows (0), columns (1) or parts of values of these numbers."""
    dim = src.dim() + dim if dim < 0 else dim
    if dim > 1:
        return src.set_value(_values_of(src).index_select(dim - 1, idx))
    kept, number = src.storage, _share(src, idx, len(idx), src.size(dim))
    pointers, other, value = src.csc() if dim else src.csr()
    counts = (kept.colcount() if dim else kept.rowcount())[idx]
    begins = counts.new_zeros(len(idx) + 1)
    torch.cumsum(counts, dim=0, out=begins[1:])
    mine = _repeated(counts, number)
    order = torch.arange(len(mine), device=mine.device)
    order += gathered(pointers[idx] - begins[:-1], begins, len(mine))
    other, value = other[order], None if value is None else value[order]
    if not dim:
        sizes = len(idx), src.size(1)
        return src.from_storage(SparseStorage(mine, begins, other, value, sizes, is_sorted=True, rowcount=counts))
    return _by_rows(src, other, mine, value, len(idx), colptr=begins, colcount=counts)


def _by_rows(
    src: SparseTensor, row: Tensor, col: Tensor, value: Tensor | None, columns: int, **kept: Any
) -> SparseTensor:
    """Entries that were in the order of columns, in that of rows."""
    order = (columns * row + col).argsort()
    value = None if value is None else value[order]
    return src.from_storage(
        SparseStorage(
            row[order], None, col[order], value, (src.size(0), columns), is_sorted=True, csc2csr=order, **kept
        )
    )


def _values_of(src: SparseTensor) -> Tensor:
    value = src.storage.value()
    if value is None:
        raise ValueError
    return value


@_provides
def masked_select(src: SparseTensor, dim: int, mask: Tensor) -> SparseTensor:
    """Rows (0), columns (1) or parts of values where the mask is true."""
    dim = src.dim() + dim if dim < 0 else dim
    if dim > 1:
        return src.set_value(_values_of(src).index_select(dim - 1, mask.nonzero().flatten()))
    kept, (row, col, value) = src.storage, src.coo()
    if dim:
        order = kept.csr2csc()
        row, col, value = row[order], col[order], None if value is None else value[order]
    counts = (kept.colcount() if dim else kept.rowcount())[mask]
    number = _share(src, row, len(counts), len(mask))
    is_picked = mask[col if dim else row]
    if number is not None:
        is_picked = holding(is_picked, number)
    other = (row if dim else col)[is_picked]
    mine = _repeated(counts, None if number is None else len(other))
    value = None if value is None else value[is_picked]
    if not dim:
        sizes = len(counts), src.size(1)
        return src.from_storage(SparseStorage(mine, None, other, value, sizes, is_sorted=True, rowcount=counts))
    return _by_rows(src, other, mine, value, len(counts), colcount=counts)


def _entries(src: SparseTensor, chosen: Tensor, layout: str | None = None) -> SparseTensor:
    """Entries of a mask or of numbers, in the order of rows or with `layout="csc"` of columns."""
    if layout == "csc":
        order = src.storage.csc2csr()
        chosen = chosen[order] if chosen.dtype == torch.bool else order[chosen]
    row, col, value = src.coo()
    row, col = row[chosen], col[chosen]
    return SparseTensor(row, None, col, None if value is None else value[chosen], src.sparse_sizes(), is_sorted=True)


@_provides
def narrow(src: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    """Rows (0), columns (1) or parts of values from `start` on."""
    dim = src.dim() + dim if dim < 0 else dim
    start = src.size(dim) + start if start < 0 else start
    if dim > 1:
        return src.set_value(_values_of(src).narrow(dim - 1, start, length))
    row, col, value = src.coo()
    number = _share(src, row, length, src.size(dim))
    if dim:
        mask = (col >= start) & (col < start + length)
        mask = mask if number is None else holding(mask, number)
        row, col, value = row[mask], col[mask] - start, None if value is None else value[mask]
        return src.from_storage(SparseStorage(row, None, col, value, (src.size(0), length), is_sorted=True))
    rowptr = src.storage.rowptr().narrow(0, start, length + 1)
    rowptr = rowptr - rowptr[0]
    first = 0 if number is not None else int(src.storage.rowptr()[start])
    number = int(rowptr[-1]) if number is None else number
    row, col = row.narrow(0, first, number) - start, col.narrow(0, first, number)
    value = None if value is None else value.narrow(0, first, number)
    return src.from_storage(SparseStorage(row, rowptr, col, value, (length, src.size(1)), is_sorted=True))


@_provides
def get_diag(src: SparseTensor) -> Tensor:
    """Values of the diagonal, with zeros where no entry is; on the GPU each place is taken to have one."""
    row, col, value = src.coo()
    value = torch.ones(len(row), device=row.device) if value is None else value
    out = value.new_zeros((min(src.size(0), src.size(1)), *value.shape[1:]))
    mask = row == col
    if is_virtual(mask):
        mask = holding(mask, min(len(out), len(row)))
    out[row[mask]] = value[mask]
    return out


def select(src: SparseTensor, dim: int, idx: int) -> SparseTensor:
    """One row (0) or column (1)."""
    return narrow(src, dim, idx, 1)


def _picked(src: SparseTensor, index: Any) -> SparseTensor:
    """Numbers, slices, masks and indices, one for each dimension."""
    out, items = src, list(index) if isinstance(index, tuple) else [index]
    dim = 0
    for n, item in enumerate(items):
        if item is Ellipsis:
            dim = src.dim() - (len(items) - n - 1)
            continue
        if isinstance(item, int):
            out = select(out, dim, item)
        elif isinstance(item, slice):
            if item.step is not None:
                raise ValueError("Step parameter not yet supported.")
            start, stop, _ = item.indices(src.size(dim))
            out = narrow(out, dim, start, max(stop - start, 0))
        else:
            each = torch.as_tensor(item, device=src.device())  # a list, or numpy's
            out = (masked_select if each.dtype == torch.bool else index_select)(out, dim, each)
        dim += 1
    return out


for _name, _function in {
    "add": add, "__add__": add, "__radd__": add, "eye": staticmethod(_eye), "get_diag": get_diag,
    "index_select": index_select, "index_select_nnz": _entries, "masked_select": masked_select,
    "masked_select_nnz": _entries, "narrow": narrow, "select": select, "__getitem__": _picked,
}.items():  # fmt: skip
    setattr(SparseTensor, _name, _function)

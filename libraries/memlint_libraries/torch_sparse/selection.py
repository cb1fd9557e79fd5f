"""Matrices of torch_sparse put together, and rows, columns and entries picked of one.

cat.py, narrow.py, select.py, masked_select.py, index_select.py, permute.py and tensor.py:640. How many entries a part
of a matrix has, values say: on the GPU they are taken to lie evenly among rows and columns.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.libraries.library import assume_once
from memlint_libraries.torch_scatter import gathered
from memlint_libraries.torch_sparse.storage import SparseStorage, holding
from memlint_libraries.torch_sparse.tensor import SparseTensor, provides

Tensor = torch.Tensor


@provides("cat")
def cat(tensors: Sequence[SparseTensor], dim: Any) -> SparseTensor:
    """Matrices below one another (0), beside one another (1), or both (`(0, 1)`), with what all have worked out."""
    dims = {dim + tensors[0].dim() if dim < 0 else dim} if isinstance(dim, int) else set(dim)
    stores = [each.storage for each in tensors]
    values = _together((each.value() for each in stores), dim=max(0, min(dims) - 1))
    if min(dims) > 1:
        return tensors[0].set_value(values, "coo")
    entries = _sums(each.nnz() for each in tensors)
    parts: dict[str, Any] = {"value": values}
    sizes, starts = [0, 0], [[0], [0]]
    for axis in (0, 1):
        along = [each.sparse_size(axis) for each in tensors]
        sizes[axis] = sum(along) if axis in dims else max(along)
        starts[axis] = _sums(along) if axis in dims else [0] * len(along)
    rows = (each._row if 0 in dims else each.row() for each in stores)
    parts["row"] = _together(_after(rows, starts[0]))
    parts["col"] = _together(_after((each.col() for each in stores), starts[1]))
    for axis, (begins, counts) in enumerate((("rowptr", "rowcount"), ("colptr", "colcount"))):
        if axis in dims:
            parts[begins] = _together(_pointers_after([getattr(each, f"_{begins}") for each in stores], entries))
            parts[counts] = _together(getattr(each, f"_{counts}") for each in stores)
    if dims == {0, 1}:
        for name in ("csr2csc", "csc2csr"):
            parts[name] = _together(_after([getattr(each, f"_{name}") for each in stores], entries, always=True))
    return tensors[0].from_storage(
        SparseStorage(**parts, sparse_sizes=(sizes[0], sizes[1]), is_sorted=0 in dims, trust_data=True)
    )


def _sums(numbers: Iterable[int]) -> list[int]:
    """How much there is before each."""
    sums = [0]
    for number in numbers:
        sums.append(sums[-1] + number)
    return sums[:-1]


def _after(parts: Iterable[Tensor | None], starts: list[int], *, always: bool = False) -> Iterable[Tensor | None]:
    """The same with so much added; what is not moved along a dimension is not copied."""
    if not always and not any(starts):
        yield from parts
        return
    for part, start in zip(parts, starts, strict=True):
        yield None if part is None else part + start


def _pointers_after(parts: list[Tensor | None], entries: list[int]) -> Iterable[Tensor | None]:
    for n, (part, before) in enumerate(zip(parts, entries, strict=True)):
        yield part if part is None or n == 0 else part[1:] + before


def _together(parts: Iterable[Tensor | None], dim: int = 0) -> Tensor | None:
    """All of them after each other, if all are there."""
    listed = list(parts)
    present = [each for each in listed if each is not None]
    return torch.cat(present, dim=dim) if len(present) == len(listed) else None


def _share(src: SparseTensor, picked: Tensor, number: int, of: int) -> int | None:
    """Entries of so many rows or columns: on the host these are counted."""
    if not is_virtual(picked):
        return None
    assume_once("entries of torch_sparse are taken to lie evenly among rows and columns")
    return src.nnz() * number // max(of, 1)


def _repeated(counts: Tensor, number: int | None) -> Tensor:
    return torch.arange(len(counts), device=counts.device).repeat_interleave(counts, output_size=number)


@provides("index_select", "index_select")
def index_select(src: SparseTensor, dim: int, idx: Tensor) -> SparseTensor:
    """Rows (0), columns (1) or parts of values of these numbers."""
    dim = src.dim() + dim if dim < 0 else dim
    if dim > 1:
        return src.set_value(_values_of(src).index_select(dim - 1, idx), "coo")
    kept, number = src.storage, _share(src, src.storage.col(), len(idx), src.size(dim))
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


@provides("masked_select", "masked_select")
def masked_select(src: SparseTensor, dim: int, mask: Tensor) -> SparseTensor:
    """Rows (0), columns (1) or parts of values where the mask is true."""
    dim = src.dim() + dim if dim < 0 else dim
    if dim > 1:
        return src.set_value(_values_of(src).index_select(dim - 1, mask.nonzero().flatten()), "coo")
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


def _entries(src: SparseTensor, chosen: Tensor) -> SparseTensor:
    row, col, value = src.coo()
    row, col, value = row[chosen], col[chosen], None if value is None else value[chosen]
    return SparseTensor(row, None, col, value, src.sparse_sizes(), is_sorted=True)


@provides("index_select", "index_select_nnz")
def index_select_nnz(src: SparseTensor, idx: Tensor, layout: str | None = None) -> SparseTensor:
    """Entries of these numbers, in the order of rows or with `layout="csc"` of columns."""
    return _entries(src, src.storage.csc2csr()[idx] if layout == "csc" else idx)


@provides("masked_select", "masked_select_nnz")
def masked_select_nnz(src: SparseTensor, mask: Tensor, layout: str | None = None) -> SparseTensor:
    """Entries where the mask is true, in the order of rows or with `layout="csc"` of columns."""
    return _entries(src, mask[src.storage.csc2csr()] if layout == "csc" else mask)


@provides("narrow", "narrow")
def narrow(src: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    """Rows (0), columns (1) or parts of values from `start` on."""
    dim = src.dim() + dim if dim < 0 else dim
    start = src.size(dim) + start if start < 0 else start
    if dim > 1:
        return src.set_value(_values_of(src).narrow(dim - 1, start, length), "coo")
    kept, number = src.storage, _share(src, src.storage.col(), length, src.size(dim))
    if dim == 0:
        return _narrowed(src, (start, 0), (length, src.sparse_size(1)), number)
    row, col, value = src.coo()
    mask = (col >= start) & (col < start + length)
    mask = mask if number is None else holding(mask, number)
    row, col, value = row[mask], col[mask] - start, None if value is None else value[mask]
    colptr = None if kept._colptr is None else kept._colptr.narrow(0, start, length + 1)
    colptr = None if colptr is None else colptr - colptr[0]
    colcount = None if kept._colcount is None else kept._colcount.narrow(0, start, length)
    sizes = src.sparse_size(0), length
    return src.from_storage(
        SparseStorage(row, None, col, value, sizes, colptr=colptr, colcount=colcount, is_sorted=True, trust_data=True)
    )


def _narrowed(
    src: SparseTensor, start: tuple[int, int], length: tuple[int, int], number: int | None, **cached: Tensor | None
) -> SparseTensor:
    """Rows from the first of `start` on, whose columns begin at its second: views of so many entries."""
    rowptr, col, value = src.csr()
    rowptr = rowptr.narrow(0, start[0], length[0] + 1)
    first = 0 if number is not None else int(rowptr[0])
    rowptr = rowptr - rowptr[0]
    number = int(rowptr[-1]) if number is None else number
    row, count = src.storage._row, src.storage._rowcount
    row = None if row is None else row.narrow(0, first, number) - start[0]
    col = col.narrow(0, first, number)
    col = col - start[1] if cached else col
    value = None if value is None else value.narrow(0, first, number)
    count = None if count is None else count.narrow(0, start[0], length[0])
    for name in ("csr2csc", "csc2csr"):
        order = getattr(src.storage, f"_{name}")
        if cached and order is not None:
            cached[name] = order.narrow(0, first, number) - first
    return src.from_storage(
        SparseStorage(row, rowptr, col, value, length, rowcount=count, is_sorted=True, trust_data=True, **cached)
    )


def _narrow_diag(src: SparseTensor, start: tuple[int, int], length: tuple[int, int]) -> SparseTensor:
    """One of matrices that were put together along the diagonal."""
    kept, number = src.storage, _share(src, src.storage.col(), length[0], src.size(0))
    colptr = None if kept._colptr is None else kept._colptr.narrow(0, start[1], length[1] + 1)
    colptr = None if colptr is None else colptr - colptr[0]
    colcount = None if kept._colcount is None else kept._colcount.narrow(0, start[1], length[1])
    return _narrowed(src, start, length, number, colptr=colptr, colcount=colcount)


@provides("select", "select")
def select(src: SparseTensor, dim: int, idx: int) -> SparseTensor:
    """One row (0) or column (1)."""
    return narrow(src, dim, idx, 1)


@provides("permute", "permute")
def permute(src: SparseTensor, perm: Tensor) -> SparseTensor:
    """Rows and columns in another order."""
    assert src.is_quadratic()
    return index_select(index_select(src, 0, perm), 1, perm)


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


_narrow_diag.__name__ = "__narrow_diag__"
provides("narrow", "__narrow_diag__")(_narrow_diag)
for _name in ("__getitem__",):  # by name, as mypy reads an assignment as the class's own
    setattr(SparseTensor, _name, _picked)

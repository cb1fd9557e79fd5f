"""The diagonal of a matrix of torch_sparse (diag.py, csrc/cuda/diag_cuda.cu)."""

from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.accelerator.values import content
from memlint.libraries.library import assume_once, launch
from memlint_libraries.torch_sparse.storage import SparseStorage, holding, library
from memlint_libraries.torch_sparse.tensor import SparseTensor, provides

Tensor = torch.Tensor


@provides("diag", "remove_diag")
def remove_diag(src: SparseTensor, k: int = 0) -> SparseTensor:
    """Remove the entries of a diagonal; on the GPU, where no values say it, it is assumed to have none."""
    row, col, value = src.coo()
    is_other = row != (col if k == 0 else col - k)
    if content(is_other) is None:
        assume_once("edges of torch_sparse are taken to lead from no node to itself before such are set")
    is_other = holding(is_other, len(row))
    new_row, new_col = row[is_other], col[is_other]
    value = None if value is None else value[is_other]
    counts = {"rowcount": (row, src.storage._rowcount), "colcount": (col, src.storage._colcount)}
    counted = {name: (index, count) for name, (index, count) in counts.items() if count is not None}
    fewer = {}
    if counted:
        mask = holding(~is_other, 0)
        for name, (index, count) in counted.items():
            fewer[name] = count.clone()
            fewer[name][index[mask]] -= 1
    sizes = src.sparse_sizes()
    return src.from_storage(
        SparseStorage(new_row, None, new_col, value, sizes, is_sorted=True, trust_data=True, **fewer)
    )


@provides("diag", "set_diag")
def set_diag(src: SparseTensor, values: Tensor | None = None, k: int = 0) -> SparseTensor:
    """Set the entries of a diagonal, to ones unless `values` are given."""
    src = remove_diag(src, k)
    row, col, value = src.coo()
    sizes = src.sparse_sizes()
    number, first = _length_of_diagonal(src, k), max(-k, 0)
    mask = _beside_diagonal(row, col, sizes[1], number, k)
    is_diagonal = holding(~mask, number)
    diagonal = torch.arange(first, first + number, device=row.device)
    new_row = row.new_empty(len(mask))
    new_row[mask], new_row[is_diagonal] = row, diagonal
    new_col = col.new_empty(len(mask))
    new_col[mask], new_col[is_diagonal] = col, diagonal.add_(k)
    new_value = None
    if value is not None:
        new_value = value.new_empty((len(mask), *value.shape[1:]))
        new_value[mask] = value
        new_value[is_diagonal] = value.new_ones(number) if values is None else values
    more = {}
    for name, count, begin in (
        ("rowcount", src.storage._rowcount, first),
        ("colcount", src.storage._colcount, first + k),
    ):
        if count is not None:
            more[name] = count.clone()
            more[name][begin : begin + number] += 1
    return src.from_storage(
        SparseStorage(new_row, None, new_col, new_value, sizes, is_sorted=True, trust_data=True, **more)
    )


def _beside_diagonal(row: Tensor, col: Tensor, columns: int, number: int, k: int) -> Tensor:
    """Places, in the order of rows, of entries beside a diagonal of which all are to be there (`non_diag_mask`)."""
    if is_virtual(row):
        library.assume()
        mask = torch.zeros(len(row) + number, dtype=torch.bool, device=row.device)
        launch((row, col), (mask,))
        return holding(mask, len(row))
    first = max(-k, 0)
    diagonal = torch.arange(first, first + number)
    places = torch.cat((row * columns + col, diagonal * columns + diagonal + k))
    return places.argsort() < len(row)


@provides("diag", "fill_diag")
def fill_diag(src: SparseTensor, fill_value: Any, k: int = 0) -> SparseTensor:
    """Set the entries of a diagonal to one value."""
    value = src.storage.value()
    if value is None:
        return set_diag(src, None, k)
    return set_diag(src, value.new_full((_length_of_diagonal(src, k), *src.sizes()[2:]), fill_value), k)


def _length_of_diagonal(src: SparseTensor, k: int) -> int:
    rows, columns = src.sparse_sizes()
    return min(rows + k, columns) if k < 0 else min(rows, columns - k)


@provides("diag", "get_diag")
def get_diag(src: SparseTensor) -> Tensor:
    """Values of the diagonal, with zeros where no entry is; on the GPU each place is taken to have one."""
    row, col, value = src.coo()
    value = torch.ones(len(row), device=row.device) if value is None else value
    out = value.new_zeros((min(src.size(0), src.size(1)), *value.shape[1:]))
    mask = holding(row == col, min(len(out), len(row)))
    out[row[mask]] = value[mask]
    return out

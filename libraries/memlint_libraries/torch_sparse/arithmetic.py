"""Sums and products of a matrix of torch_sparse, entry by entry, and what its entries are reduced to.

add.py, mul.py and reduce.py.
"""

from typing import Any

import torch

from memlint.accelerator.values import content
from memlint.libraries.library import assume_once
from memlint_libraries.torch_scatter import gathered, scatter, segment_csr
from memlint_libraries.torch_sparse.storage import holding
from memlint_libraries.torch_sparse.tensor import SparseTensor, provides

Tensor = torch.Tensor


def of_each_entry(src: SparseTensor, other: Tensor) -> Tensor:
    """For each entry the number of its row [rows, 1] or of its column [1, columns]. Raises ValueError."""
    rowptr, col, _ = src.csr()
    if other.shape[0] == src.size(0) and other.shape[1] == 1:
        rows: Tensor = gathered(other.squeeze(1), rowptr, len(col))
        return rows
    if other.shape[0] == 1 and other.shape[1] == src.size(1):
        return other.squeeze(0)[col]
    raise ValueError(
        f"Size mismatch: Expected size ({src.size(0)}, 1, ...) or (1, {src.size(1)}, ...), but got size {other.size()}."
    )


def _both(src: SparseTensor, other: SparseTensor) -> tuple[Tensor, Tensor, Tensor | None, tuple[int, int]]:
    """Entries of two matrices after each other, and the size that holds both."""
    first, second = src.coo(), other.coo()
    value = None if first[2] is None or second[2] is None else torch.cat([first[2], second[2]])
    sizes = max(src.size(0), other.size(0)), max(src.size(1), other.size(1))
    return torch.cat([first[0], second[0]]), torch.cat([first[1], second[1]]), value, sizes


@provides("add", "add", "__add__", "__radd__")
def add(src: SparseTensor, other: Any) -> SparseTensor:
    """Values and a number of each row [rows, 1] or column [1, columns], or entries of both matrices."""
    if isinstance(other, SparseTensor):
        row, col, values, sizes = _both(src, other)
        return SparseTensor(row, None, col, values, sizes).coalesce("sum")
    more, value = of_each_entry(src, other), src.storage.value()
    return src.set_value(more.add_(1) if value is None else more.to(value.dtype).add_(value), "coo")


@provides("add", "add_", "__iadd__")
def add_(src: SparseTensor, other: Tensor) -> SparseTensor:
    """A number of each row or column more, in place."""
    more, value = of_each_entry(src, other), src.storage.value()
    return src.set_value_(more.add_(1) if value is None else value.add_(more.to(value.dtype)), "coo")


@provides("add", "add_nnz")
def add_nnz(src: SparseTensor, other: Tensor, layout: str | None = None) -> SparseTensor:
    """A number of each entry more."""
    value = src.storage.value()
    return src.set_value(other.add(1) if value is None else value.add(other.to(value.dtype)), layout)


@provides("add", "add_nnz_")
def add_nnz_(src: SparseTensor, other: Tensor, layout: str | None = None) -> SparseTensor:
    """A number of each entry more, in place."""
    value = src.storage.value()
    return src.set_value_(other.add(1) if value is None else value.add_(other.to(value.dtype)), layout)


@provides("mul", "mul", "__mul__", "__rmul__")
def mul(src: SparseTensor, other: Any) -> SparseTensor:
    """Values times a number of each row [rows, 1] or column [1, columns], or entries that both matrices have."""
    if isinstance(other, SparseTensor):
        return _in_common(src, other)
    factors, value = of_each_entry(src, other), src.storage.value()
    return src.set_value(factors if value is None else factors.to(value.dtype).mul_(value), "coo")


def _in_common(src: SparseTensor, other: SparseTensor) -> SparseTensor:
    """Products of entries of the same places: on the GPU, where values do not say them, as many as there can be."""
    for matrix in (src, other):
        if not matrix.is_coalesced():
            raise ValueError("a matrix that is multiplied has several entries of one place")
    row, col, value, sizes = _both(src, other)
    if value is None:
        raise ValueError("Both sparse tensors must contain values")
    places = col.new_full((col.numel() + 1,), -1)
    places[1:] = row * sizes[1] + col
    order = places[1:].argsort()
    places[1:] = places[1:][order]
    row, col, value = row[order], col[order], value[order]
    is_second = places[1:] == places[:-1]
    if content(is_second) is None:
        assume_once("two matrices of torch_sparse are taken to have in common all places of the one with fewer entries")
    seconds = holding(is_second, min(src.nnz(), other.nnz())).nonzero().view(-1)
    value = value[seconds - 1] * value[seconds]
    # in order already: to look at that takes less than the copies above, which are still held
    return SparseTensor(row[is_second], None, col[is_second], value, sizes, is_sorted=True)


@provides("mul", "mul_", "__imul__")
def mul_(src: SparseTensor, other: Tensor) -> SparseTensor:
    """Times a number of each row or column, in place."""
    factors, value = of_each_entry(src, other), src.storage.value()
    return src.set_value_(factors if value is None else value.mul_(factors.to(value.dtype)), "coo")


@provides("mul", "mul_nnz")
def mul_nnz(src: SparseTensor, other: Tensor, layout: str | None = None) -> SparseTensor:
    """Times a number of each entry."""
    value = src.storage.value()
    return src.set_value(other if value is None else value.mul(other.to(value.dtype)), layout)


@provides("mul", "mul_nnz_")
def mul_nnz_(src: SparseTensor, other: Tensor, layout: str | None = None) -> SparseTensor:
    """Times a number of each entry, in place."""
    value = src.storage.value()
    return src.set_value_(other if value is None else value.mul_(other.to(value.dtype)), layout)


# --- reductions


def _reduced(src: SparseTensor, dim: int | None, reduce: str) -> Any:
    value, kept = src.storage.value(), src.storage
    if dim is None:
        if value is None:
            return torch.tensor(src.nnz() if reduce == "sum" else 1, dtype=src.dtype(), device=src.device())
        return getattr(value, reduce)()
    dim = dim + src.dim() if dim < 0 else dim
    if value is None:
        if dim > 1:
            raise ValueError(dim)
        if reduce != "sum":
            return torch.ones(src.size(1 - dim), dtype=src.dtype())
        return (kept.rowcount() if dim else kept.colcount()).to(src.dtype())
    if dim == 0:
        return scatter(value, kept.col(), 0, None, src.size(1), reduce)
    if dim == 1:
        return segment_csr(value, kept.rowptr(), None, reduce)
    of_entries = getattr(value, reduce)(dim - 1)
    return of_entries[0] if reduce in {"min", "max"} else of_entries


def _reduction(reduce: str) -> None:
    def function(src: SparseTensor, dim: int | None = None) -> Any:
        """Reduce all entries, or those of each column (0) or row (1)."""
        return _reduced(src, dim, reduce)

    function.__name__ = reduce
    provides("reduce", reduce)(function)


for _reduce in ("sum", "mean", "min", "max"):
    _reduction(_reduce)

"""What a matrix of torch_sparse keeps: entries sorted by row, and what was worked out of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from memlint.accelerator.device import entry_of, is_virtual
from memlint.libraries.library import Library, assume_once, launch
from memlint.libraries.torch_scatter import segment_csr

Tensor = torch.Tensor
library = Library("torch_sparse", distribution="torch-sparse", version="0.6.18")


def _pointers(index: Tensor, size: int) -> Tensor:
    """Where each of `size` rows begins in a sorted index (`ind2ptr`)."""
    if not is_virtual(index):
        return torch.cat((index.new_zeros(1), torch.bincount(index, minlength=size).cumsum(0)))
    library.assume()
    out = index.new_empty(size + 1)
    launch((index,), (out,))
    return out


def _indices(pointers: Tensor, number: int) -> Tensor:
    """The row of each of `number` entries (`ptr2ind`)."""
    if not is_virtual(pointers):
        rows = torch.arange(len(pointers) - 1)
        return torch.repeat_interleave(rows, pointers.diff())
    library.assume()
    out = pointers.new_empty(number)
    launch((pointers,), (out,))
    return out


def holding(mask: Tensor, number: int) -> Tensor:
    """The same, of which it is known how many elements are true."""
    if is_virtual(mask):
        entry_of(mask).num_true = number
    return mask


class SparseStorage:
    """Entries sorted by row, and what was worked out of them, which is kept: by name, as the library's fields."""

    def __init__(
        self, row: Tensor | None = None, rowptr: Tensor | None = None, col: Tensor | None = None,
        value: Tensor | None = None, sparse_sizes: tuple[int | None, int | None] | None = None, *,
        is_sorted: bool = False, trust_data: bool = False, **kept: Tensor | None,
    ) -> None:  # fmt: skip
        assert col is not None
        rows, columns = sparse_sizes or (None, None)
        if rows is None:
            rows = len(rowptr) - 1 if rowptr is not None else _size(row)
        self.sizes = rows, _size(col) if columns is None else columns
        parts = {"row": row, "rowptr": rowptr, "col": col, "value": value, **kept}
        self._parts = {name: part.contiguous() for name, part in parts.items() if part is not None}
        if not is_sorted and len(col):
            self._sort()

    def _sort(self) -> None:
        """By row and column, where they are not; on the GPU they are taken not to be."""
        row, col = self.row(), self.col()
        places = col.new_zeros(len(col) + 1)
        places[1:] = row
        places[1:] *= self.sizes[1]
        places[1:] += col
        is_out_of_order = (places[1:] < places[:-1]).any()
        if is_virtual(col):
            assume_once("torch_sparse is taken to sort the edges it is given")
        elif not is_out_of_order:
            return
        order = places[1:].sort()[1]
        self._parts = {name: self._parts[name][order] for name in ("row", "col", "value") if name in self._parts}

    def __getattr__(self, name: str) -> Tensor | None:
        """A field, such as `_row`, where it was given or worked out."""
        if name.startswith("__") or not name.startswith("_"):
            raise AttributeError(name)
        part: Tensor | None = self.__dict__["_parts"].get(name[1:])
        return part

    def _part(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = make()
        return part

    def row(self) -> Tensor:
        """Of each entry."""
        return self._part("row", lambda: _indices(self._parts["rowptr"], len(self.col())))

    def col(self) -> Tensor:
        """Of each entry."""
        return self._parts["col"]

    def value(self) -> Tensor | None:
        """Of each entry, or None for ones."""
        return self._parts.get("value")

    def rowptr(self) -> Tensor:
        """Where rows begin."""
        return self._part("rowptr", lambda: _pointers(self._parts["row"], self.sizes[0]))

    def rowcount(self) -> Tensor:
        """Entries of each row."""
        return self._part("rowcount", lambda: self.rowptr()[1:] - self.rowptr()[:-1])

    def colcount(self) -> Tensor:
        """Entries of each column."""

        def make() -> Tensor:
            pointers = self._parts.get("colptr")
            if pointers is not None:
                return pointers[1:] - pointers[:-1]
            ones = torch.ones_like(self.col())
            return ones.new_zeros(self.sizes[1]).scatter_add_(0, self.col(), ones)

        return self._part("colcount", make)

    def colptr(self) -> Tensor:
        """Where columns begin."""

        def make() -> Tensor:
            order = self._parts.get("csr2csc")
            if order is not None:
                return _pointers(self.col()[order], self.sizes[1])
            pointers = self.col().new_zeros(self.sizes[1] + 1)
            torch.cumsum(self.colcount(), dim=0, out=pointers[1:])
            return pointers

        return self._part("colptr", make)

    def csr2csc(self) -> Tensor:
        """Entries in the order of columns."""
        return self._part("csr2csc", lambda: (self.sizes[0] * self.col() + self.row()).sort()[1])

    def csc2csr(self) -> Tensor:
        """The way back."""
        return self._part("csc2csr", lambda: self.csr2csc().sort()[1])

    def sparse_sizes(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.sizes

    def having(self, **parts: Tensor | None) -> SparseStorage:
        """The same with other parts, or without those that are None."""
        together: dict[str, Any] = {**self._parts, **parts}
        return SparseStorage(sparse_sizes=self.sizes, is_sorted=True, **together)

    def each(self, function: Callable[[Tensor], Tensor]) -> SparseStorage:
        """What a function makes of all that is kept."""
        return self.having(**{name: function(part) for name, part in self._parts.items()})

    def coalesced(self, reduce: str) -> SparseStorage:
        """Entries of one place put together; on the GPU each is taken to have its own."""
        places = self.col().new_full((len(self.col()) + 1,), -1)
        places[1:] = self.sizes[1] * self.row() + self.col()
        mask = places[1:] > places[:-1]
        if not is_virtual(mask) and mask.all():
            return self
        mask = holding(mask, len(mask)) if is_virtual(mask) else mask
        parts: dict[str, Any] = {"row": self.row()[mask], "col": self.col()[mask]}
        value = self.value()
        if value is not None:
            begins = mask.nonzero().flatten()
            parts["value"] = segment_csr(value, torch.cat([begins, begins.new_full((1,), len(value))]), None, reduce)
        return SparseStorage(sparse_sizes=self.sizes, is_sorted=True, **parts)


def _size(index: Tensor | None) -> int:
    return int(index.max()) + 1 if index is not None and len(index) else 0

"""The contents of a torch_sparse matrix: entries sorted by row, and what was computed from them (storage.py).

csrc/cuda/convert_cuda.cu makes pointers of indices and back. What lies on the host has its values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.values import content
from memlint.libraries.library import Library, assume_once, launch
from memlint_libraries.torch_scatter import segment_csr

Tensor = torch.Tensor
library = Library("torch_sparse", distribution="torch-sparse", version="0.6.18")

ENTRIES = ("row", "rowptr", "col", "value")
CACHED = ("rowcount", "colptr", "colcount", "csr2csc", "csc2csr")
"""Parts of a storage: what it is made of, and what is worked out of that (storage.py:473)."""


def pointers(index: Tensor, size: int) -> Tensor:
    """Return the positions at which each of `size` rows begins in a sorted index (`ind2ptr`)."""
    if not is_virtual(index):
        return torch.cat((index.new_zeros(1), torch.bincount(index, minlength=size).cumsum(0)))
    library.assume()
    out = index.new_empty(size + 1)
    launch((index,), (out,))
    return out


def indices(begins: Tensor, number: int) -> Tensor:
    """The row of each of `number` entries (`ptr2ind`)."""
    if not is_virtual(begins):
        rows = torch.arange(len(begins) - 1)
        return torch.repeat_interleave(rows, begins.diff())
    library.assume()
    out = begins.new_empty(number)
    launch((begins,), (out,))
    return out


library.ops.update({"torch_sparse::ind2ptr": pointers, "torch_sparse::ptr2ind": indices})


def holding(mask: Tensor, number: int) -> Tensor:
    """The same, of which it is known how many elements are true, unless its values say it."""
    if is_virtual(mask) and content(mask) is None:
        entry_of(mask).num_true = number
    return mask


def decided(flag: Tensor, otherwise: bool) -> bool:
    """Read a flag on the GPU, as the library does there; `otherwise` if memlint has no value for it."""
    known = content(flag)
    return otherwise if known is None else bool(known)


class SparseStorage:
    """Entries sorted by row, and what was worked out of them, which is kept in the library's fields."""

    _row: Tensor | None
    _rowptr: Tensor | None
    _col: Tensor
    _value: Tensor | None
    _sparse_sizes: tuple[int, int]
    _rowcount: Tensor | None
    _colptr: Tensor | None
    _colcount: Tensor | None
    _csr2csc: Tensor | None
    _csc2csr: Tensor | None

    def __init__(
        self, row: Tensor | None = None, rowptr: Tensor | None = None, col: Tensor | None = None,
        value: Tensor | None = None, sparse_sizes: tuple[int | None, int | None] | None = None,
        rowcount: Tensor | None = None, colptr: Tensor | None = None, colcount: Tensor | None = None,
        csr2csc: Tensor | None = None, csc2csr: Tensor | None = None, is_sorted: bool = False,
        trust_data: bool = False,
    ) -> None:  # fmt: skip
        assert col is not None
        assert row is not None or rowptr is not None
        rows, columns = sparse_sizes or (None, None)
        if rows is None:
            rows = len(rowptr) - 1 if rowptr is not None else _size(row)
        self._sparse_sizes = rows, _size(col) if columns is None else columns
        given = (row, rowptr, col, value, rowcount, colptr, colcount, csr2csc, csc2csr)
        for name, part in zip((*ENTRIES, *CACHED), given, strict=True):
            setattr(self, f"_{name}", None if part is None else part.contiguous())
        self._check(self._sparse_sizes if not trust_data else None)
        if not is_sorted and len(col):
            self._sort()

    def _check(self, sizes: tuple[int, int] | None) -> None:
        """Check as the library does; the largest numbers only on the host, and not of data that is to be trusted."""
        number = len(self._col)
        lengths = {"row": number, "value": number, "csr2csc": number, "csc2csr": number,
                   "rowptr": self._sparse_sizes[0] + 1, "rowcount": self._sparse_sizes[0],
                   "colptr": self._sparse_sizes[1] + 1, "colcount": self._sparse_sizes[1]}  # fmt: skip
        for name, part in self._parts().items():
            assert name == "value" or (part.dtype == torch.long and part.dim() == 1), name
            assert part.device == self._col.device, name
            assert name == "col" or len(part) == lengths[name], name
        if sizes is not None and number and not is_virtual(self._col):
            assert self._row is None or int(self._row.max()) < sizes[0]
            assert int(self._col.max()) < sizes[1]

    def _parts(self) -> dict[str, Tensor]:
        """Return the parts that exist, by name."""
        parts = {name: getattr(self, f"_{name}") for name in (*ENTRIES, *CACHED)}
        return {name: part for name, part in parts.items() if part is not None}

    def _sort(self) -> None:
        """Sort by row and column if they are not sorted; on the GPU they are assumed not to be."""
        places = self._col.new_zeros(len(self._col) + 1)
        places[1:] = self.row()
        places[1:] *= self._sparse_sizes[1]
        places[1:] += self._col
        is_out_of_order = (places[1:] < places[:-1]).any()
        if is_virtual(self._col):  # even where they are known: a program may fill what stands for edges with one number
            assume_once("torch_sparse is taken to sort the edges it is given")
        elif not is_out_of_order:
            return
        order = places[1:].sort()[1]
        self._row, self._col = self.row()[order], self._col[order]
        self._value = None if self._value is None else self._value[order]
        self._csr2csc = self._csc2csr = None

    @classmethod
    def empty(cls) -> SparseStorage:
        """Make a storage without entries, on the host."""
        none = torch.tensor([], dtype=torch.long)
        return cls(none, None, none, sparse_sizes=(0, 0), is_sorted=True, trust_data=True)

    # --- entries

    def row(self) -> Tensor:
        """Return the row of each entry."""
        if self._row is None:
            assert self._rowptr is not None
            self._row = indices(self._rowptr, len(self._col))
        return self._row

    def rowptr(self) -> Tensor:
        """Return the positions at which rows begin."""
        if self._rowptr is None:
            assert self._row is not None
            self._rowptr = pointers(self._row, self._sparse_sizes[0])
        return self._rowptr

    def col(self) -> Tensor:
        """Return the column of each entry."""
        return self._col

    def has_value(self) -> bool:
        """Return True if entries have values; without, all are ones."""
        return self._value is not None

    def value(self) -> Tensor | None:
        """Return the value of each entry, or None for ones."""
        return self._value

    def set_value_(self, value: Tensor | None, layout: str | None = None) -> SparseStorage:
        """Have these values, which may be in the order of columns (`layout="csc"`)."""
        if value is not None:
            value = (value[self.csc2csr()] if layout == "csc" else value).contiguous()
            assert value.device == self._col.device
            assert len(value) == len(self._col)
        self._value = value
        return self

    def set_value(self, value: Tensor | None, layout: str | None = None) -> SparseStorage:
        """Another with these values."""
        if value is not None and layout == "csc":
            value = value[self.csc2csr()]
        return self._having(value=value)

    def sparse_sizes(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._sparse_sizes

    def sparse_size(self, dim: int) -> int:
        """Rows or columns."""
        return self._sparse_sizes[dim]

    def sparse_resize(self, sparse_sizes: tuple[int, int]) -> SparseStorage:
        """Return it with other numbers of rows and columns, of which those that go have no entries."""
        parts: dict[str, Tensor] = {}
        for dim, names in enumerate((("rowptr", "rowcount"), ("colptr", "colcount"))):
            more = sparse_sizes[dim] - self._sparse_sizes[dim]
            for name, filled in zip(names, (len(self._col), 0), strict=True):
                part = getattr(self, f"_{name}")
                if part is not None and more:
                    parts[name] = torch.cat([part, part.new_full((more,), filled)]) if more > 0 else part[:more]
        return self._having(sparse_sizes=tuple(sparse_sizes), **parts)

    def sparse_reshape(self, num_rows: int, num_cols: int) -> SparseStorage:
        """Return it with other rows and columns of as many places; one of the numbers may be -1."""
        total = self._sparse_sizes[0] * self._sparse_sizes[1]
        num_rows = total // num_cols if num_rows == -1 else num_rows
        num_cols = total // num_rows if num_cols == -1 else num_cols
        assert num_rows * num_cols == total
        places = self._sparse_sizes[1] * self.row() + self._col
        row, col = torch.div(places, num_cols, rounding_mode="floor"), places % num_cols
        return SparseStorage(row, None, col, self._value, (num_rows, num_cols), is_sorted=True, trust_data=True)

    # --- what is worked out of them

    def rowcount(self) -> Tensor:
        """Entries of each row."""
        if self._rowcount is None:
            self._rowcount = self.rowptr()[1:] - self.rowptr()[:-1]
        return self._rowcount

    def colptr(self) -> Tensor:
        """Return the positions at which columns begin."""
        if self._colptr is None and self._csr2csc is not None:
            self._colptr = pointers(self._col[self._csr2csc], self._sparse_sizes[1])
        elif self._colptr is None:
            begins = self._col.new_zeros(self._sparse_sizes[1] + 1)
            torch.cumsum(self.colcount(), dim=0, out=begins[1:])
            self._colptr = begins
        return self._colptr

    def colcount(self) -> Tensor:
        """Entries of each column."""
        if self._colcount is None and self._colptr is not None:
            self._colcount = self._colptr[1:] - self._colptr[:-1]
        elif self._colcount is None:
            ones = torch.ones_like(self._col)
            self._colcount = ones.new_zeros(self._sparse_sizes[1]).scatter_add_(0, self._col, ones)
        return self._colcount

    def csr2csc(self) -> Tensor:
        """Entries in the order of columns."""
        if self._csr2csc is None:
            self._csr2csc = (self._sparse_sizes[0] * self._col + self.row()).sort()[1]
        return self._csr2csc

    def csc2csr(self) -> Tensor:
        """The way back."""
        if self._csc2csr is None:
            self._csc2csr = self.csr2csc().sort()[1]
        return self._csc2csr

    def _places(self) -> Tensor:
        """The number of each entry's place among all, after one that is before them."""
        places = self._col.new_full((len(self._col) + 1,), -1)
        places[1:] = self._sparse_sizes[1] * self.row() + self._col
        return places

    def is_coalesced(self) -> bool:
        """Return True if each place has one entry; assumed on the GPU, where no values say it."""
        places = self._places()
        of_all = (places[1:] > places[:-1]).all()
        if content(of_all) is None:
            assume_once("matrices of torch_sparse are taken to have one entry a place")
        return decided(of_all, otherwise=True)

    def coalesce(self, reduce: str = "add") -> SparseStorage:
        """Entries of one place put together; on the GPU each is taken to have its own, and all are copied."""
        places = self._places()
        mask = places[1:] > places[:-1]
        if decided(mask.all(), otherwise=False):
            return self
        mask = holding(mask, len(mask))
        row, col, value = self.row()[mask], self._col[mask], self._value
        if value is not None:
            begins = mask.nonzero().flatten()
            begins = torch.cat([begins, begins.new_full((1,), len(value))])
            value = segment_csr(value, begins, None, reduce)
        return SparseStorage(row, None, col, value, self._sparse_sizes, is_sorted=True, trust_data=True)

    def fill_cache_(self) -> SparseStorage:
        """Work out all that can be kept."""
        for name in ("row", "rowptr", *CACHED):
            getattr(self, name)()
        return self

    def clear_cache_(self) -> SparseStorage:
        """Drop what was worked out."""
        for name in CACHED:
            setattr(self, f"_{name}", None)
        return self

    def cached_keys(self) -> list[str]:
        """Names of what was worked out."""
        return [name for name in CACHED if getattr(self, f"_{name}") is not None]

    def num_cached_keys(self) -> int:
        """How many these are."""
        return len(self.cached_keys())

    # --- others of it

    def _having(self, **parts: Any) -> SparseStorage:
        """Another with other parts or another size, or without parts that are None."""
        together: dict[str, Any] = {"sparse_sizes": self._sparse_sizes, **self._parts(), **parts}
        return SparseStorage(is_sorted=True, trust_data=True, **together)

    def _each(self, function: Callable[[Tensor], Tensor]) -> SparseStorage:
        return self._having(**{name: function(part) for name, part in self._parts().items()})

    def copy(self) -> SparseStorage:
        """Another of the same parts."""
        return self._having()

    def clone(self) -> SparseStorage:
        """Another of copies of all parts."""
        return self._each(torch.clone)

    def type(self, dtype: torch.dtype, non_blocking: bool = False) -> SparseStorage:
        """Values in a dtype."""
        if self._value is None or self._value.dtype == dtype:
            return self
        return self.set_value(self._value.to(dtype, non_blocking=non_blocking), "coo")

    def type_as(self, tensor: Tensor, non_blocking: bool = False) -> SparseStorage:
        """Values in the dtype of a tensor."""
        return self.type(tensor.dtype, non_blocking)

    def to_device(self, device: torch.device | str, non_blocking: bool = False) -> SparseStorage:
        """All parts on a device."""
        if torch.device(device) == self._col.device:
            return self
        return self._each(lambda part: part.to(device, non_blocking=non_blocking))

    def device_as(self, tensor: Tensor, non_blocking: bool = False) -> SparseStorage:
        """All parts on the device of a tensor."""
        return self.to_device(tensor.device, non_blocking)

    def cuda(self) -> SparseStorage:
        """All parts on the GPU."""
        return self if self._col.is_cuda else self._each(torch.Tensor.cuda)

    def pin_memory(self) -> SparseStorage:
        """Copies of all parts in pinned memory."""
        return self._each(torch.Tensor.pin_memory)

    def is_pinned(self) -> bool:
        """Return True if all parts are pinned."""
        return all(part.is_pinned() for part in self._parts().values())

    def share_memory_(self) -> SparseStorage:
        """Move all parts to memory that processes share."""
        for part in self._parts().values():
            part.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Return True if all parts are in shared memory."""
        return all(part.is_shared() for part in self._parts().values())


def _size(index: Tensor | None) -> int:
    return int(index.max()) + 1 if index is not None and len(index) else 0


for _part in ("row", "rowptr", *CACHED):

    def _has(self: SparseStorage, part: str = f"_{_part}") -> bool:
        """Return True if this part is stored."""
        return getattr(self, part) is not None

    setattr(SparseStorage, f"has_{_part}", _has)

for _module in ("torch_sparse", "torch_sparse.storage"):
    library.provides(_module)(SparseStorage)

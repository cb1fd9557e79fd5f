"""A sparse matrix of torch_sparse: its formats, what it is, and others of it (tensor.py, transpose.py).

What lies on the host has its values.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from textwrap import indent
from typing import Any, TypeVar

import torch

from memlint.accelerator.private import indices_of, parse_to
from memlint_libraries.torch_scatter import segment_csr
from memlint_libraries.torch_sparse.storage import SparseStorage, decided, holding, library

Tensor = torch.Tensor
Sizes = tuple[int | None, int | None]
F = TypeVar("F", bound=Callable[..., Any])


def provides(module: str, *methods: str) -> Callable[[F], F]:
    """Let the decorated function stand in `torch_sparse` and a module of it, and be these methods of a matrix."""

    def enter(function: F) -> F:
        for method in methods:
            setattr(SparseTensor, method, function)
        return library.provides("torch_sparse", f"torch_sparse.{module}")(function)

    return enter


class SparseTensor:
    """A matrix, by its storage."""

    def __init__(
        self, row: Tensor | None = None, rowptr: Tensor | None = None, col: Tensor | None = None,
        value: Tensor | None = None, sparse_sizes: Sizes | None = None, is_sorted: bool = False,
        trust_data: bool = False,
    ) -> None:  # fmt: skip
        self.storage = SparseStorage(row, rowptr, col, value, sparse_sizes, is_sorted=is_sorted, trust_data=trust_data)

    @classmethod
    def from_storage(cls, storage: SparseStorage) -> SparseTensor:
        """Another of the parts of this storage."""
        tensor = cls.__new__(cls)
        tensor.storage = storage.copy()
        return tensor

    @classmethod
    def from_edge_index(
        cls, edge_index: Tensor, edge_attr: Tensor | None = None, sparse_sizes: Sizes | None = None,
        is_sorted: bool = False, trust_data: bool = False,
    ) -> SparseTensor:  # fmt: skip
        """Make a matrix of rows and columns [2, entries]."""
        return cls(edge_index[0], None, edge_index[1], edge_attr, sparse_sizes, is_sorted, trust_data)

    @classmethod
    def from_dense(cls, mat: Tensor, has_value: bool = True) -> SparseTensor:
        """Make a matrix of the entries that are not zero; of several numbers for one entry, one must not be zero."""
        row, col = (mat.abs().sum(list(range(2, mat.dim()))) if mat.dim() > 2 else mat).nonzero().t()
        return cls._of(mat, row, None, col, mat[row, col] if has_value else None)

    @classmethod
    def from_torch_sparse_coo_tensor(cls, mat: Tensor, has_value: bool = True) -> SparseTensor:
        """Make a matrix of PyTorch's own COO tensor."""
        mat = mat.coalesce()
        row, col = indices_of(mat)
        return cls._of(mat, row, None, col, mat.values() if has_value else None)

    @classmethod
    def from_torch_sparse_csr_tensor(cls, mat: Tensor, has_value: bool = True) -> SparseTensor:
        """Make a matrix of PyTorch's own CSR tensor."""
        return cls._of(mat, None, mat.crow_indices(), mat.col_indices(), mat.values() if has_value else None)

    @classmethod
    def _of(
        cls, mat: Tensor, row: Tensor | None, rowptr: Tensor | None, col: Tensor, value: Tensor | None
    ) -> SparseTensor:
        return cls(row, rowptr, col, value, (mat.shape[0], mat.shape[1]), is_sorted=True, trust_data=True)

    @classmethod
    def eye(
        cls, M: int, N: int | None = None, has_value: bool = True, dtype: torch.dtype | None = None,  # noqa: N803
        device: Any = None, fill_cache: bool = False,
    ) -> SparseTensor:  # fmt: skip
        """Ones on the diagonal."""
        rows, columns = M, M if N is None else N
        row = torch.arange(min(rows, columns), device=device)
        rowptr = torch.arange(rows + 1, device=row.device)
        rowptr[columns + 1 :] = columns
        value = torch.ones(len(row), dtype=dtype, device=row.device) if has_value else None
        cached = {}
        if fill_cache:
            colptr = torch.arange(columns + 1, device=row.device)
            colptr[rows + 1 :] = rows
            counts = [torch.ones(size, dtype=torch.long, device=row.device) for size in (rows, columns)]
            for count in counts:
                count[len(row) :] = 0
            cached = {"rowcount": counts[0], "colptr": colptr, "colcount": counts[1], "csr2csc": row, "csc2csr": row}
        sizes = rows, columns
        return cls.from_storage(
            SparseStorage(row, rowptr, row, value, sizes, is_sorted=True, trust_data=True, **cached)
        )

    def __getattr__(self, name: str) -> Any:
        """Refuse a method that is not modelled."""
        if name.startswith("_") or name == "storage":
            raise AttributeError(name)
        return library.unknown(f"torch_sparse.SparseTensor.{name}")

    # --- formats and parts

    def coo(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Rows, columns and values."""
        return self.storage.row(), self.storage.col(), self.storage.value()

    def csr(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the positions at which rows begin, columns and values."""
        return self.storage.rowptr(), self.storage.col(), self.storage.value()

    def csc(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the positions at which columns begin, rows and values."""
        order, value = self.storage.csr2csc(), self.storage.value()
        value = None if value is None else value[order]
        return self.storage.colptr(), self.storage.row()[order], value

    def has_value(self) -> bool:
        """Return True if entries have values; without, all are ones."""
        return self.storage.has_value()

    def set_value_(self, value: Tensor | None, layout: str | None = None) -> SparseTensor:
        """Have these values, which may be in the order of columns (`layout="csc"`)."""
        self.storage.set_value_(value, layout)
        return self

    def set_value(self, value: Tensor | None, layout: str | None = None) -> SparseTensor:
        """Another with these values."""
        return self.from_storage(self.storage.set_value(value, layout))

    def fill_value_(self, fill_value: Any, dtype: torch.dtype | None = None) -> SparseTensor:
        """Have one value throughout."""
        return self.set_value_(torch.full((self.nnz(),), fill_value, dtype=dtype, device=self.device()), "coo")

    def fill_value(self, fill_value: Any, dtype: torch.dtype | None = None) -> SparseTensor:
        """Another with one value throughout."""
        return self.set_value(torch.full((self.nnz(),), fill_value, dtype=dtype, device=self.device()), "coo")

    def sparse_resize(self, sparse_sizes: tuple[int, int]) -> SparseTensor:
        """Return the matrix with other numbers of rows and columns."""
        return self.from_storage(self.storage.sparse_resize(sparse_sizes))

    def sparse_reshape(self, num_rows: int, num_cols: int) -> SparseTensor:
        """Return the matrix with other rows and columns of as many places."""
        return self.from_storage(self.storage.sparse_reshape(num_rows, num_cols))

    def is_coalesced(self) -> bool:
        """Return True if each place has one entry."""
        return self.storage.is_coalesced()

    def coalesce(self, reduce: str = "sum") -> SparseTensor:
        """Entries of one place put together."""
        return self.from_storage(self.storage.coalesce(reduce))

    def fill_cache_(self) -> SparseTensor:
        """Work out all that can be kept."""
        self.storage.fill_cache_()
        return self

    def clear_cache_(self) -> SparseTensor:
        """Drop what was worked out."""
        self.storage.clear_cache_()
        return self

    # --- what it is

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseTensor) or self.sizes() != other.sizes():
            return False
        if self.has_value() != other.has_value():
            return False
        pairs = zip(self.csr(), other.csr(), strict=True)
        return all(a is None or b is None or torch.equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def sparse_sizes(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.storage.sparse_sizes()

    def sparse_size(self, dim: int) -> int:
        """Rows or columns."""
        return self.storage.sparse_size(dim)

    def sizes(self) -> list[int]:
        """The shape, of entries as well."""
        value = self.storage.value()
        return [*self.sparse_sizes(), *([] if value is None else value.shape[1:])]

    def size(self, dim: int) -> int:
        """One of `sizes`."""
        return self.sizes()[dim]

    def dim(self) -> int:
        """The number of `sizes`."""
        return len(self.sizes())

    def nnz(self) -> int:
        """Entries."""
        return self.storage.col().numel()

    def numel(self) -> int:
        """Numbers of all entries."""
        value = self.storage.value()
        return self.nnz() if value is None else value.numel()

    def density(self) -> float:
        """Entries for each place."""
        rows, columns = self.sparse_sizes()
        return self.nnz() / (rows * columns) if rows and columns else 0.0

    def sparsity(self) -> float:
        """The share of places without entries."""
        return 1 - self.density()

    def avg_row_length(self) -> float:
        """Entries for each row."""
        return self.nnz() / self.sparse_size(0)

    def avg_col_length(self) -> float:
        """Entries for each column."""
        return self.nnz() / self.sparse_size(1)

    def _distances(self) -> Tensor:
        row, col, _ = self.coo()
        return (row - col).abs_()

    def bandwidth(self) -> int:
        """How far from the diagonal entries are at most."""
        return int(self._distances().max())

    def avg_bandwidth(self) -> float:
        """How far from the diagonal entries are."""
        return float(self._distances().to(torch.float).mean())

    def bandwidth_proportion(self, bandwidth: int) -> float:
        """The share of entries that are no further from the diagonal."""
        return int((self._distances() <= bandwidth).sum()) / self.nnz()

    def is_quadratic(self) -> bool:
        """Return True if it has as many rows as columns."""
        return self.sparse_size(0) == self.sparse_size(1)

    def is_symmetric(self) -> bool:
        """Return True if it is its own transpose; assumed on the GPU, where no values say it."""
        if not self.is_quadratic():
            return False
        (rowptr, col, value), (colptr, row, turned) = self.csr(), self.csc()
        if decided((rowptr != colptr).any(), otherwise=False) or decided((col != row).any(), otherwise=False):
            return False
        return value is None or turned is None or decided((value == turned).all(), otherwise=True)

    def device(self) -> torch.device:
        """Return the device of the matrix."""
        return self.storage.col().device

    def is_cuda(self) -> bool:
        """Return True if the matrix is on a GPU."""
        return self.storage.col().is_cuda

    def dtype(self) -> torch.dtype:
        """Return the dtype of the values."""
        value = self.storage.value()
        return torch.float if value is None else value.dtype

    def is_floating_point(self) -> bool:
        """Return True if the values are floating point."""
        return self.dtype().is_floating_point

    def requires_grad(self) -> bool:
        """Return True if the values require a gradient."""
        value = self.storage.value()
        return value is not None and value.requires_grad

    def __repr__(self) -> str:
        row, col, value = self.coo()
        parts = {"row": row, "col": col, **({} if value is None else {"val": value})}
        lines = [f"{name}={indent(repr(part), ' ' * 6)[6:]}" for name, part in parts.items()]
        lines.append(f"size={tuple(self.sizes())}, nnz={self.nnz()}, density={100 * self.density():.02f}%")
        text = indent(",\n".join(lines), " " * 13)
        return f"SparseTensor({text[13:]})"

    # --- others of it

    def copy(self) -> SparseTensor:
        """Another of the same parts."""
        return self.from_storage(self.storage)

    def clone(self) -> SparseTensor:
        """A copy of all parts."""
        return self.from_storage(self.storage.clone())

    def to(self, *args: Any, **options: Any) -> SparseTensor:
        """All parts on a device, values in a dtype."""
        device, dtype, non_blocking, _ = parse_to(*args, **options)
        tensor = self if dtype is None else self.type(dtype, non_blocking)
        return tensor if device is None else tensor.to_device(device, non_blocking)

    def to_device(self, device: torch.device | str, non_blocking: bool = False) -> SparseTensor:
        """All parts on a device."""
        moved = self.storage.to_device(device, non_blocking)
        return self if moved is self.storage else self.from_storage(moved)

    def device_as(self, tensor: Tensor, non_blocking: bool = False) -> SparseTensor:
        """All parts on the device of a tensor."""
        return self.to_device(tensor.device, non_blocking)

    def cuda(self, device: Any = None, non_blocking: bool = False) -> SparseTensor:
        """All parts on the GPU; a number is made there first, to ask which (tensor.py:636)."""
        return self.device_as(torch.tensor(0.0, device="cuda" if device is None else device))

    def cpu(self) -> SparseTensor:
        """All parts on the host."""
        return self.to_device("cpu")

    def type(self, dtype: torch.dtype, non_blocking: bool = False) -> SparseTensor:
        """Values in a dtype."""
        made = self.storage.type(dtype, non_blocking)
        return self if made is self.storage else self.from_storage(made)

    def type_as(self, tensor: Tensor, non_blocking: bool = False) -> SparseTensor:
        """Values in the dtype of a tensor."""
        return self.type(tensor.dtype, non_blocking)

    def pin_memory(self) -> SparseTensor:
        """Copies of all parts in pinned memory."""
        return self.from_storage(self.storage.pin_memory())

    def is_pinned(self) -> bool:
        """Return True if all parts are pinned."""
        return self.storage.is_pinned()

    def share_memory_(self) -> SparseTensor:
        """Move all parts to memory that processes share."""
        self.storage.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Return True if all parts are in shared memory."""
        return self.storage.is_shared()

    def detach_(self) -> SparseTensor:
        """Let its values leave their graph."""
        value = self.storage.value()
        if value is not None:
            value.detach_()
        return self

    def detach(self) -> SparseTensor:
        """Return the matrix without the graph of its values."""
        value = self.storage.value()
        return self.set_value(None if value is None else value.detach(), "coo")

    def requires_grad_(self, requires_grad: bool = True, dtype: torch.dtype | None = None) -> SparseTensor:
        """Have gradients of its values, which are ones where there are none."""
        if requires_grad and not self.has_value():
            self.fill_value_(1.0, dtype)
        value = self.storage.value()
        if value is not None:
            value.requires_grad_(requires_grad)
        return self

    def to_symmetric(self, reduce: str = "sum") -> SparseTensor:
        """Entries of both ways; on the GPU no edge is taken to have its opposite already."""
        size = max(self.sparse_sizes())
        row, col, value = self.coo()
        number = len(col)
        places = col.new_full((2 * number + 1,), -1)
        places[1 : number + 1], places[number + 1 :] = row, col
        places[1:] *= size
        places[1 : number + 1] += col
        places[number + 1 :] += row
        places, order = places.sort()
        mask = holding(places[1:] > places[:-1], 2 * number)
        order = order[1:].sub_(1)
        chosen = order[mask]
        if value is not None:
            begins = mask.nonzero().flatten()
            begins = torch.cat([begins, begins.new_full((1,), len(order))])
            value = segment_csr(torch.cat([value, value])[order], begins, None, reduce)
        both = torch.cat([row, col])[chosen], torch.cat([col, row])[chosen]
        return SparseTensor(both[0], None, both[1], value, (size, size), is_sorted=True, trust_data=True)

    # --- other kinds of matrices

    def _values(self, dtype: torch.dtype | None = None) -> Tensor:
        value = self.storage.value()
        return torch.ones(self.nnz(), dtype=dtype, device=self.device()) if value is None else value

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """Return the dense matrix, with zeros between the entries."""
        row, col, value = self.coo()
        dense = torch.zeros(self.sizes(), dtype=dtype if value is None else value.dtype, device=self.device())
        dense[row, col] = self._values(dense.dtype)
        return dense

    def to_torch_sparse_coo_tensor(self, dtype: torch.dtype | None = None) -> Tensor:
        """PyTorch's own of rows and columns."""
        index = torch.stack(self.coo()[:2])
        return torch.sparse_coo_tensor(index, self._values(dtype), self.sizes())

    def to_torch_sparse_csr_tensor(self, dtype: torch.dtype | None = None) -> Tensor:
        """PyTorch's own of where rows begin."""
        rowptr, col, _ = self.csr()
        return torch.sparse_csr_tensor(rowptr, col, self._values(dtype), self.sizes())

    def to_torch_sparse_csc_tensor(self, dtype: torch.dtype | None = None) -> Tensor:
        """PyTorch's own of where columns begin."""
        colptr, row, value = self.csc()
        return torch.sparse_csc_tensor(colptr, row, self._values(dtype) if value is None else value, self.sizes())

    @classmethod
    def from_scipy(cls, mat: Any, has_value: bool = True) -> SparseTensor:
        """Make a matrix of a SciPy matrix, on the host."""
        colptr = torch.from_numpy(mat.indptr).to(torch.long) if mat.format == "csc" else None
        rows = mat.tocsr()
        rowptr = torch.from_numpy(rows.indptr).to(torch.long)
        entries = rows.tocoo()
        row, col = (torch.from_numpy(index).to(torch.long) for index in (entries.row, entries.col))
        value = torch.from_numpy(entries.data) if has_value else None
        return cls.from_storage(
            SparseStorage(row, rowptr, col, value, tuple(mat.shape[:2]), colptr=colptr, is_sorted=True)
        )

    def to_scipy(self, layout: str | None = None, dtype: torch.dtype | None = None) -> Any:
        """SciPy's own, in the order of entries (`coo`), rows (`csr`) or columns (`csc`)."""
        sparse = importlib.import_module("scipy.sparse")  # which memlint does not need

        layout = layout or "coo"
        assert self.dim() == 2
        first, second, value = getattr(self, layout)()
        value = torch.ones(self.nnz(), dtype=dtype) if value is None else value
        first, second, value = (each.detach().cpu().numpy() for each in (first, second, value))
        parts = (value, (first, second)) if layout == "coo" else (value, second, first)
        return getattr(sparse, f"{layout}_matrix")(parts, self.sizes())


for _name, _dtype in {
    "bfloat16": torch.bfloat16, "bool": torch.bool, "byte": torch.uint8, "char": torch.int8, "half": torch.half,
    "float": torch.float, "double": torch.double, "short": torch.short, "int": torch.int, "long": torch.long,
}.items():  # fmt: skip

    def _cast(self: SparseTensor, dtype: torch.dtype = _dtype) -> SparseTensor:
        """Values in this dtype."""
        return self.type(dtype)

    setattr(SparseTensor, _name, _cast)

library.provides("torch_sparse", "torch_sparse.tensor")(SparseTensor)


@provides("transpose", "t")
def t(src: SparseTensor) -> SparseTensor:
    """The transpose: copies in the order of columns."""
    kept, order = src.storage, src.storage.csr2csc()
    row, col, value = src.coo()
    value = None if value is None else value[order]
    storage = SparseStorage(
        col[order], kept._colptr, row[order], value, kept.sparse_sizes()[::-1], is_sorted=True, trust_data=True,
        rowcount=kept._colcount, colptr=kept._rowptr, colcount=kept._rowcount, csr2csc=kept._csc2csr, csc2csr=order,
    )  # fmt: skip
    return src.from_storage(storage)

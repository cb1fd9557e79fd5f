"""torch_sparse 0.6.18: a sparse matrix that keeps what it has been sorted into, and its product with a dense one.

torch_sparse/storage.py, tensor.py, matmul.py, diag.py, mul.py, reduce.py and transpose.py; csrc/spmm.cpp, and
csrc/cuda/spmm_cuda.cu, convert_cuda.cu and diag_cuda.cu. What lies on the host has its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.libraries import torch_sparse_storage
from memlint.libraries.library import assume_once, launch
from memlint.libraries.torch_scatter import gathered, scatter, segment_csr
from memlint.libraries.torch_sparse_storage import SparseStorage, holding

Tensor = torch.Tensor
library = torch_sparse_storage.library
_provides = library.provides("torch_sparse")


class SparseTensor:
    """A matrix, by its storage."""

    def __init__(
        self, row: Tensor | None = None, rowptr: Tensor | None = None, col: Tensor | None = None,
        value: Tensor | None = None, sparse_sizes: tuple[int | None, int | None] | None = None,
        is_sorted: bool = False, trust_data: bool = False,
    ) -> None:  # fmt: skip
        self.storage = SparseStorage(row, rowptr, col, value, sparse_sizes, is_sorted=is_sorted)

    @classmethod
    def from_storage(cls, storage: SparseStorage) -> SparseTensor:
        """Another with this storage."""
        tensor = cls.__new__(cls)
        tensor.storage = storage
        return tensor

    @classmethod
    def from_edge_index(
        cls, edge_index: Tensor, edge_attr: Tensor | None = None,
        sparse_sizes: tuple[int | None, int | None] | None = None, is_sorted: bool = False,
        trust_data: bool = False,  # noqa: ARG003
    ) -> SparseTensor:  # fmt: skip
        """Of rows and columns [2, entries]."""
        return cls(edge_index[0], None, edge_index[1], edge_attr, sparse_sizes, is_sorted)

    @classmethod
    def from_dense(cls, mat: Tensor, has_value: bool = True) -> SparseTensor:
        """Of what is not zero."""
        row, col = mat.nonzero().t()
        return cls(row, None, col, mat[row, col] if has_value else None, (mat.shape[0], mat.shape[1]), is_sorted=True)

    def __getattr__(self, name: str) -> Any:
        """What is not known."""
        if name.startswith("_") or name == "storage":
            raise AttributeError(name)
        return library.unknown(f"torch_sparse.SparseTensor.{name}")

    # --- what it is

    def coo(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Rows, columns and values."""
        return self.storage.row(), self.storage.col(), self.storage.value()

    def csr(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Where rows begin, columns and values."""
        return self.storage.rowptr(), self.storage.col(), self.storage.value()

    def csc(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Where columns begin, rows and values."""
        order, value = self.storage.csr2csc(), self.storage.value()
        return self.storage.colptr(), self.storage.row()[order], None if value is None else value[order]

    def has_value(self) -> bool:
        """Whether entries are not just ones."""
        return self.storage.value() is not None

    def sparse_sizes(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.storage.sizes

    def sparse_size(self, dim: int) -> int:
        """Rows or columns."""
        return self.storage.sizes[dim]

    def sizes(self) -> list[int]:
        """The shape, of entries as well."""
        value = self.storage.value()
        return [*self.storage.sizes, *([] if value is None else value.shape[1:])]

    def size(self, dim: int) -> int:
        """One of `sizes`."""
        return self.sizes()[dim]

    def dim(self) -> int:
        """The number of `sizes`."""
        return len(self.sizes())

    def nnz(self) -> int:
        """Entries."""
        return self.storage.col().numel()

    def device(self) -> torch.device:
        """Where it lies."""
        return self.storage.col().device

    def is_cuda(self) -> bool:
        """Whether that is a GPU."""
        return self.storage.col().is_cuda

    def dtype(self) -> torch.dtype:
        """Of values."""
        value = self.storage.value()
        return torch.float if value is None else value.dtype

    def requires_grad(self) -> bool:
        """Whether values do."""
        value = self.storage.value()
        return value is not None and value.requires_grad

    # --- others of it

    def copy(self) -> SparseTensor:
        """Another of the same parts."""
        return self.from_storage(self.storage)

    def clone(self) -> SparseTensor:
        """A copy of all parts."""
        return self.from_storage(self.storage.each(torch.clone))

    def to(self, *args: Any, **options: Any) -> SparseTensor:
        """All parts on a device, values in a dtype."""
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **options)
        tensor = self.type(dtype) if dtype is not None else self
        if device is None or device == self.device():
            return tensor
        return self.from_storage(tensor.storage.each(lambda part: part.to(device, non_blocking=non_blocking)))

    def cuda(self, device: Any = None, non_blocking: bool = False) -> SparseTensor:
        """All parts on the GPU."""
        return self.to(torch.device("cuda") if device is None else device, non_blocking=non_blocking)

    def cpu(self) -> SparseTensor:
        """All parts on the host."""
        return self.to(torch.device("cpu"))

    def type(self, dtype: torch.dtype) -> SparseTensor:
        """Values in a dtype."""
        value = self.storage.value()
        return self if value is None else self.set_value(value.to(dtype))

    def half(self) -> SparseTensor:
        """Values in float16."""
        return self.type(torch.half)

    def float(self) -> SparseTensor:
        """Values in float32."""
        return self.type(torch.float)

    def set_value(self, value: Tensor | None, layout: str | None = None) -> SparseTensor:
        """Another with these values, which may be in the order of columns."""
        if value is not None and layout == "csc":
            value = value[self.storage.csc2csr()]
        return self.from_storage(self.storage.having(value=value))

    def set_value_(self, value: Tensor | None, layout: str | None = None) -> SparseTensor:
        """The same with these values."""
        self.storage = self.set_value(value, layout).storage
        return self

    def fill_value(self, fill_value: Any, dtype: torch.dtype | None = None) -> SparseTensor:
        """Another with one value throughout."""
        return self.set_value(torch.full((self.nnz(),), fill_value, dtype=dtype, device=self.device()))

    def fill_value_(self, fill_value: Any, dtype: torch.dtype | None = None) -> SparseTensor:
        """The same with one value throughout."""
        self.storage = self.fill_value(fill_value, dtype).storage
        return self

    def detach(self) -> SparseTensor:
        """Without the graph of its values."""
        value = self.storage.value()
        return self.set_value(None if value is None else value.detach())

    def requires_grad_(self, requires_grad: bool = True, dtype: torch.dtype | None = None) -> SparseTensor:
        """Have gradients of its values, which are ones where there are none."""
        tensor = self.fill_value_(1.0, dtype) if requires_grad and not self.has_value() else self
        value = tensor.storage.value()
        if value is not None:
            value.requires_grad_(requires_grad)
        return tensor

    def coalesce(self, reduce: str = "sum") -> SparseTensor:
        """Entries of one place put together."""
        return self.from_storage(self.storage.coalesced(reduce))

    def fill_cache_(self) -> SparseTensor:
        """Work out all that can be kept."""
        for name in ("row", "rowptr", "rowcount", "colptr", "colcount", "csr2csc", "csc2csr"):
            getattr(self.storage, name)()
        return self

    def t(self) -> SparseTensor:
        """The transpose: copies in the order of columns."""
        kept, order = self.storage, self.storage.csr2csc()
        row, col, value = self.coo()
        value = None if value is None else value[order]
        storage = SparseStorage(
            col[order], kept._colptr, row[order], value, kept.sizes[::-1], is_sorted=True, rowcount=kept._colcount,
            colptr=kept._rowptr, colcount=kept._rowcount, csr2csc=kept._csc2csr, csc2csr=order,
        )  # fmt: skip
        return self.from_storage(storage)

    def to_symmetric(self, reduce: str = "sum") -> SparseTensor:
        """Entries of both ways; on the GPU no edge is taken to have its opposite already."""
        size = max(self.sizes()[:2])
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
        return SparseTensor(both[0], None, both[1], value, (size, size), is_sorted=True)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """With zeros between."""
        row, col, value = self.coo()
        dense = torch.zeros(self.sizes(), dtype=dtype if value is None else value.dtype, device=self.device())
        dense[row, col] = dense.new_ones(self.nnz()) if value is None else value
        return dense

    def to_torch_sparse_coo_tensor(self, dtype: torch.dtype | None = None) -> Tensor:
        """PyTorch's own of rows and columns."""
        row, col, value = self.coo()
        index = torch.stack([row, col])
        value = torch.ones(self.nnz(), dtype=dtype, device=self.device()) if value is None else value
        return torch.sparse_coo_tensor(index, value, self.sizes())

    def to_torch_sparse_csr_tensor(self, dtype: torch.dtype | None = None) -> Tensor:
        """PyTorch's own of where rows begin."""
        rowptr, col, value = self.csr()
        value = torch.ones(self.nnz(), dtype=dtype, device=self.device()) if value is None else value
        return torch.sparse_csr_tensor(rowptr, col, value, self.sizes())

    def __matmul__(self, other: Any) -> Any:
        """`matmul`."""
        return matmul(self, other)

    def __mul__(self, other: Any) -> Any:
        """`mul`."""
        return mul(self, other)


# --- products


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


@_provides
def matmul(src: SparseTensor, other: Any, reduce: str = "sum") -> Any:
    """The product with a dense matrix [..., columns, features], a reduction over each row's entries."""
    if isinstance(other, SparseTensor):
        return _sparse_product(src, other)
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


def _sparse_product(left: SparseTensor, right: SparseTensor) -> SparseTensor:
    """PyTorch's own product of both."""
    product = torch.sparse.mm(left.to_torch_sparse_coo_tensor(), right.to_torch_sparse_coo_tensor())
    row, col = product._indices()
    value = product._values() if left.has_value() or right.has_value() else None
    return SparseTensor(row, None, col, value, (product.shape[0], product.shape[1]), is_sorted=True)


@_provides
def spmm(index: Tensor, value: Tensor, m: int, n: int, matrix: Tensor) -> Tensor:
    """The product of entries [2, entries] with a dense matrix, of PyTorch's ops."""
    row, col = index[0], index[1]
    matrix = matrix if matrix.dim() > 1 else matrix.unsqueeze(-1)
    parts = matrix.index_select(-2, col)
    parts = parts * value.unsqueeze(-1)
    return parts.new_zeros((*parts.shape[:-2], m, parts.shape[-1])).scatter_add_(
        -2, row.unsqueeze(-1).expand_as(parts), parts
    )


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


@_provides
def mul(src: SparseTensor, other: Any) -> SparseTensor:
    """Values times a number of each row [rows, 1] or column [1, columns]."""
    if isinstance(other, SparseTensor):
        library.unknown("torch_sparse.mul of two sparse matrices")()
    factors, value = of_each_entry(src, other), src.storage.value()
    return src.set_value(factors if value is None else factors.to(value.dtype).mul_(value))


# --- reductions


def _reduced(src: SparseTensor, dim: int | None, reduce: str) -> Tensor:
    value, kept = src.storage.value(), src.storage
    if dim is None:
        number = src.nnz() if reduce == "sum" else 1
        if value is None:
            return torch.tensor(number, dtype=src.dtype(), device=src.device())
        return value.sum() if reduce == "sum" else value.mean()
    dim = dim + src.dim() if dim < 0 else dim
    if dim > 1 and value is not None:
        return value.sum(dim - 1) if reduce == "sum" else value.mean(dim - 1)
    if value is None:
        if reduce == "mean":
            return torch.ones(src.size(1 - dim), dtype=src.dtype())
        return (kept.rowcount() if dim else kept.colcount()).to(src.dtype())
    if dim == 1:
        return segment_csr(value, kept.rowptr(), None, reduce)  # type: ignore[no-any-return]
    return scatter(value, kept.col(), 0, None, src.size(1), reduce)  # type: ignore[no-any-return]


def sum_(src: SparseTensor, dim: int | None = None) -> Tensor:
    """Of all entries, or of those of each column (0) or row (1)."""
    return _reduced(src, dim, "sum")


def mean(src: SparseTensor, dim: int | None = None) -> Tensor:
    """Of all entries, or of those of each column (0) or row (1)."""
    return _reduced(src, dim, "mean")


# --- the diagonal


@_provides
def remove_diag(src: SparseTensor, k: int = 0) -> SparseTensor:
    """Without entries of a diagonal; on the GPU it is taken to have none."""
    row, col, value = src.coo()
    is_other = holding(row != (col if k == 0 else col - k), len(row))
    if is_virtual(row):
        assume_once("edges of torch_sparse are taken to lead from no node to itself before such are set")
    value = None if value is None else value[is_other]
    storage = SparseStorage(
        row[is_other], None, col[is_other], value, src.storage.sizes, is_sorted=True, **_counts(src)
    )
    return src.from_storage(storage)


def _counts(src: SparseTensor) -> dict[str, Any]:
    """Copies of what counts entries, which stays so on the GPU; on the host it is counted again."""
    counts = {name: getattr(src.storage, f"_{name}") for name in ("rowcount", "colcount")}
    return {name: count.clone() for name, count in counts.items() if count is not None and is_virtual(count)}


@_provides
def set_diag(src: SparseTensor, values: Tensor | None = None, k: int = 0) -> SparseTensor:
    """With entries of a diagonal, ones unless there are others."""
    src = remove_diag(src, k)
    row, col, value = src.coo()
    rows, columns = src.storage.sizes
    number, first = _length_of_diagonal(src, k), max(-k, 0)
    mask = _beside_diagonal(row, col, columns, number, k)
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
    storage = SparseStorage(new_row, None, new_col, new_value, (rows, columns), is_sorted=True, **_counts(src))
    return src.from_storage(storage)


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


@_provides
def fill_diag(src: SparseTensor, fill_value: Any, k: int = 0) -> SparseTensor:
    """With one value on a diagonal."""
    value = src.storage.value()
    if value is None:
        return set_diag(src, None, k)
    return set_diag(src, value.new_full((_length_of_diagonal(src, k), *src.sizes()[2:]), fill_value), k)


def _length_of_diagonal(src: SparseTensor, k: int) -> int:
    rows, columns = src.storage.sizes
    return min(rows + k, columns) if k < 0 else min(rows, columns - k)


# --- functions of entries [2, entries]


@_provides
def coalesce(index: Tensor, value: Tensor | None, m: int, n: int, op: str = "add") -> tuple[Tensor, Tensor | None]:
    """Entries sorted, and those of one place put together."""
    storage = SparseStorage(index[0], None, index[1], value, (m, n)).coalesced(op)
    return torch.stack([storage.row(), storage.col()]), storage.value()


@_provides
def transpose(
    index: Tensor, value: Tensor | None, m: int, n: int, coalesced: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Entries of the transpose, sorted unless it is said that they need not be."""
    col, row = index
    if not coalesced:
        return torch.stack([row, col]), value
    return coalesce(torch.stack([row, col]), value, n, m)


@_provides
def t(src: SparseTensor) -> SparseTensor:
    """The transpose."""
    return src.t()


_module = library.modules["torch_sparse"]
_module.update(SparseTensor=SparseTensor, SparseStorage=SparseStorage, sum=sum_, mean=mean)
library.modules["torch_sparse.tensor"] = {"SparseTensor": SparseTensor}
library.modules["torch_sparse.storage"] = {"SparseStorage": SparseStorage}
for _function in (matmul, mul, mean, remove_diag, set_diag, fill_diag):
    setattr(SparseTensor, _function.__name__, _function)
SparseTensor.sum, SparseTensor.spmm = sum_, matmul  # type: ignore[attr-defined]

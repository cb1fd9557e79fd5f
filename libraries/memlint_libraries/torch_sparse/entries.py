"""Functions of entries [2, entries] and values in place of matrices.

coalesce.py, transpose.py, eye.py, spadd.py, spmm.py, spspmm.py and convert.py.
"""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from memlint_libraries.torch_scatter import scatter_sum
from memlint_libraries.torch_sparse.products import matmul
from memlint_libraries.torch_sparse.storage import SparseStorage, library
from memlint_libraries.torch_sparse.tensor import SparseTensor

Tensor = torch.Tensor
F = TypeVar("F", bound=Callable[..., Any])


def _provides(module: str) -> Callable[[F], F]:
    return library.provides("torch_sparse", f"torch_sparse.{module}")


@_provides("coalesce")
def coalesce(index: Tensor, value: Tensor | None, m: int, n: int, op: str = "add") -> tuple[Tensor, Tensor | None]:
    """Entries sorted, and those of one place put together."""
    storage = SparseStorage(index[0], None, index[1], value, (m, n)).coalesce(op)
    return torch.stack([storage.row(), storage.col()]), storage.value()


@_provides("transpose")
def transpose(
    index: Tensor, value: Tensor | None, m: int, n: int, coalesced: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Entries of the transpose, sorted unless it is said that they need not be."""
    col, row = index
    if not coalesced:
        return torch.stack([row, col]), value
    storage = SparseStorage(row, None, col, value, (n, m)).coalesce()
    return torch.stack([storage.row(), storage.col()]), storage.value()


@_provides("eye")
def eye(m: int, dtype: torch.dtype | None = None, device: Any = None) -> tuple[Tensor, Tensor]:
    """Places [2, m] and values of ones on the diagonal."""
    row = torch.arange(m, dtype=torch.long, device=device)
    return torch.stack([row, row]), torch.ones(m, dtype=dtype, device=device)


@_provides("spadd")
def spadd(
    indexA: Tensor,  # noqa: N803
    valueA: Tensor,  # noqa: N803
    indexB: Tensor,  # noqa: N803
    valueB: Tensor,  # noqa: N803
    m: int,
    n: int,
) -> tuple[Tensor, Tensor | None]:
    """The sum of two matrices."""
    return coalesce(torch.cat([indexA, indexB], dim=-1), torch.cat([valueA, valueB]), m, n)


@_provides("spmm")
def spmm(index: Tensor, value: Tensor, m: int, n: int, matrix: Tensor) -> Tensor:
    """The product with a dense matrix, of PyTorch's ops."""
    assert n == matrix.size(-2)
    row, col = index[0], index[1]
    matrix = matrix if matrix.dim() > 1 else matrix.unsqueeze(-1)
    out = matrix.index_select(-2, col)
    out = out * value.unsqueeze(-1)
    return scatter_sum(out, row, dim=-2, dim_size=m)


@_provides("spspmm")
def spspmm(
    indexA: Tensor, valueA: Tensor | None, indexB: Tensor, valueB: Tensor | None,  # noqa: N803
    m: int, k: int, n: int, coalesced: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The product of two matrices, which are sorted first if they are to be coalesced."""
    first = SparseTensor(indexA[0], None, indexA[1], valueA, (m, k), is_sorted=not coalesced)
    second = SparseTensor(indexB[0], None, indexB[1], valueB, (k, n), is_sorted=not coalesced)
    row, col, value = matmul(first, second).coo()
    return torch.stack([row, col]), value


@_provides("convert")
def to_torch_sparse(index: Tensor, value: Tensor, m: int, n: int) -> Tensor:
    """PyTorch's own matrix."""
    return torch.sparse_coo_tensor(index.detach(), value, (m, n))


@_provides("convert")
def from_torch_sparse(A: Tensor) -> tuple[Tensor, Tensor]:  # noqa: N803
    """Return indices and values of PyTorch's own sparse matrix."""
    return A.indices().detach(), A.values()


@_provides("convert")
def to_scipy(index: Tensor, value: Tensor, m: int, n: int) -> Any:
    """SciPy's own matrix, on the host."""
    sparse = importlib.import_module("scipy.sparse")  # which memlint does not need

    assert not index.is_cuda
    assert not value.is_cuda
    return sparse.coo_matrix((value.detach().numpy(), tuple(index.detach().numpy())), (m, n))


@_provides("convert")
def from_scipy(A: Any) -> tuple[Tensor, Tensor]:  # noqa: N803
    """Return indices and values of a SciPy matrix."""
    entries = A.tocoo()
    row, col = (torch.from_numpy(index.astype("int64")) for index in (entries.row, entries.col))
    return torch.stack([row, col]), torch.from_numpy(entries.data)

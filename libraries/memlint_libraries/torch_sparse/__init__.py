"""torch_sparse 0.6.18: a sparse matrix that keeps what it has been sorted into, and what is computed with it."""

from memlint_libraries.torch_sparse import arithmetic, diagonal, entries, products, sampling, selection
from memlint_libraries.torch_sparse.storage import SparseStorage, library
from memlint_libraries.torch_sparse.tensor import SparseTensor

__all__ = [
    "SparseStorage", "SparseTensor", "arithmetic", "diagonal", "entries", "library", "products", "sampling",
    "selection",
]  # fmt: skip

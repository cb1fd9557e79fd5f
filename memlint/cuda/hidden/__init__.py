"""Memory that CUDA kernels allocate internally: the table `ROWS`, and the modules that fill it.

`table` says how a row is written; `reductions`, `indexing`, `normalization`, `losses`, `operands` and `products` hold
them. `iteration`, `staging` and `cub` compute sizes and know nothing of torch.
"""

from memlint.cuda.hidden import (  # noqa: F401 -- their import enters their rows in the table
    host,
    host_convolution,
    indexing,
    linear_algebra,
    losses,
    normalization,
    operands,
    products,
    reductions,
    sampling,
    solvers,
    transforms,
)
from memlint.cuda.hidden.table import ROWS, Row

__all__ = ["ROWS", "Row"]

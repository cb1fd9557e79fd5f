"""Memory that CUDA kernels take inside themselves: one table, `ROWS`, and what its rows are made of.

`table` says how a row is written; `reductions`, `indexing`, `normalization`, `losses`, `operands` and `products` hold
them. `iteration`, `staging` and `cub` compute sizes and know nothing of torch.
"""

from memlint.cuda.hidden import (
    host,
    indexing,
    linear_algebra,
    losses,
    normalization,
    operands,
    products,
    reductions,
    transforms,
)
from memlint.cuda.hidden.table import ROWS, Row

__all__ = ["ROWS", "Row"]
_TABLES = (host, indexing, linear_algebra, losses, normalization, operands, products, reductions, transforms)
"""Modules that are imported for the rows they enter."""

"""Memory that CUDA kernels take inside themselves: one table, `ROWS`, and what its rows are made of.

`table` says how a row is written; `reductions`, `indexing`, `normalization`, `losses`, `operands` and `products` hold
them. `iteration`, `staging` and `cub` compute sizes and know nothing of torch.
"""

from __future__ import annotations

from memlint.cuda.hidden import indexing, losses, normalization, operands, products, reductions
from memlint.cuda.hidden.table import ROWS, Row

__all__ = ["ROWS", "Row", "indexing", "losses", "normalization", "operands", "products", "reductions"]

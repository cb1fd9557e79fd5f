"""torch_cluster 1.6.3: neighbours of points, and points far from each other; neither has a backward.

torch_cluster/knn.py, radius.py and fps.py; csrc/cuda/knn_cuda.cu:90, radius_cuda.cu:60 and fps_cuda.cu:68.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from memlint.libraries.library import Library, assume_once, launch

Tensor = torch.Tensor
library = Library("torch_cluster", distribution="torch-cluster", version="1.6.3")
_provides = library.provides("torch_cluster")


def _ends(x: Tensor, batch: Tensor | None, batch_size: int | None) -> Tensor:
    """Where the points of each example begin."""
    number = batch_size or (int(batch.max()) + 1 if batch is not None else 1)
    if batch is None or number == 1:
        return torch.arange(0, x.shape[0] + 1, x.shape[0], device=x.device)
    return torch.bucketize(torch.arange(number + 1, device=x.device), batch)


def _pairs(
    x: Tensor, y: Tensor, most: int, batch_x: Tensor | None, batch_y: Tensor | None, batch_size: int | None
) -> tuple[Tensor, ...]:
    """A row and a column of each point of `y` and each of its neighbours, `most` of them; and where examples begin."""
    x, y = (t.view(-1, 1).contiguous() if t.dim() == 1 else t.contiguous() for t in (x, y))
    ends = _ends(x, batch_x, batch_size), _ends(y, batch_y, batch_size)
    library.assume()
    row, col = (torch.full((y.shape[0] * most,), -1, device=x.device) for _ in range(2))
    launch((x, y, *ends), (row, col))
    return row, col, *ends


@_provides
def knn(
    x: Tensor, y: Tensor, k: int, batch_x: Tensor | None = None, batch_y: Tensor | None = None, cosine: bool = False,
    num_workers: int = 1, batch_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Pairs of each point of `y` and its nearest of `x`, of which there are enough."""
    row, col, *_ends_kept = _pairs(x, y, k, batch_x, batch_y, batch_size)
    mask = col != -1
    chosen = torch.empty_like(row), torch.empty_like(col)  # what `masked_select` gives
    launch((row, col, mask), chosen)
    return torch.stack(chosen)


@_provides
def radius(
    x: Tensor, y: Tensor, r: float, batch_x: Tensor | None = None, batch_y: Tensor | None = None,
    max_num_neighbors: int = 32, num_workers: int = 1, batch_size: int | None = None, ignore_same_index: bool = False,
) -> Tensor:  # fmt: skip
    """Pairs of each point of `y` and those of `x` that are near: how many, values say."""
    row, col, *_ends_kept = _pairs(x, y, max_num_neighbors, batch_x, batch_y, batch_size)
    mask = row != -1
    return torch.stack([row.masked_select(mask), col.masked_select(mask)])


def _graph(pairs: Tensor, flow: str) -> tuple[Tensor, Tensor]:
    return (pairs[1], pairs[0]) if flow == "source_to_target" else (pairs[0], pairs[1])


@_provides
def knn_graph(
    x: Tensor, k: int, batch: Tensor | None = None, loop: bool = False, flow: str = "source_to_target",
    cosine: bool = False, num_workers: int = 1, batch_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Edges to the nearest; a point is its own nearest, which is left out."""
    row, col = _graph(knn(x, x, k if loop else k + 1, batch, batch, batch_size=batch_size), flow)
    if not loop:
        mask = row != col
        edges = [torch.empty(x.shape[0] * k, dtype=t.dtype, device=t.device) for t in (row, col)]  # `row[mask]`
        launch((row, col, mask), edges)
        row, col = edges
    return torch.stack([row, col])


@_provides
def radius_graph(
    x: Tensor, r: float, batch: Tensor | None = None, loop: bool = False, max_num_neighbors: int = 32,
    flow: str = "source_to_target", num_workers: int = 1, batch_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Edges to those that are near."""
    pairs = radius(x, x, r, batch, batch, max_num_neighbors, batch_size=batch_size, ignore_same_index=not loop)
    return torch.stack(_graph(pairs, flow))


@_provides
def fps(
    src: Tensor, batch: Tensor | None = None, ratio: Any = None, random_start: bool = True,
    batch_size: int | None = None, ptr: Any = None,
) -> Tensor:  # fmt: skip
    """A share of the points of each example, each far from the others; a number a point is kept meanwhile."""
    share = 0.5 if ratio is None else float(ratio)
    if batch is not None or ptr is not None:
        assume_once("torch_cluster.fps is taken to round the number of points once, not for each example")
    library.assume()
    source = src.view(src.shape[0], -1).contiguous()
    distances = source.new_full((src.shape[0],), 5e4)
    out = torch.empty(math.ceil(share * src.shape[0]), dtype=torch.int64, device=src.device)
    launch((source, distances), (out,))
    return out

"""torch_cluster 1.6.3: neighbours of points, clusters, walks, points far from each other; none has a backward.

torch_cluster/*.py; csrc/cuda/knn_cuda.cu:90, radius_cuda.cu:60, fps_cuda.cu:68, grid_cuda.cu:27, graclus_cuda.cu:216,
nearest_cuda.cu:68 and rw_cuda.cu:119. What lies on the host has its values.
"""

from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.libraries.library import Library, launch
from memlint_libraries import points

Tensor = torch.Tensor
library = Library("torch_cluster", distribution="torch-cluster", version="1.6.3")
_provides = library.provides("torch_cluster")


def _ends(x: Tensor, batch: Tensor | None, batch_size: int | None) -> Tensor:
    """Return the positions at which the points of each example begin."""
    number = batch_size or (int(batch.max()) + 1 if batch is not None else 1)
    if batch is None or number == 1:
        return torch.arange(0, x.shape[0] + 1, x.shape[0], device=x.device)
    return torch.bucketize(torch.arange(number + 1, device=x.device), batch)


def _points(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both as [points, width]."""
    x, y = (t.view(-1, 1).contiguous() if t.dim() == 1 else t.contiguous() for t in (x, y))
    return x, y


@_provides
def knn(
    x: Tensor, y: Tensor, k: int, batch_x: Tensor | None = None, batch_y: Tensor | None = None, cosine: bool = False,
    num_workers: int = 1, batch_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Pairs of each point of `y` and its nearest of `x`, of which there are enough."""
    x, y = _points(x, y)
    ends = _ends(x, batch_x, batch_size), _ends(y, batch_y, batch_size)
    return points.nearest_pairs(library, x, y, k, ends, cosine=cosine)


@_provides
def radius(
    x: Tensor, y: Tensor, r: float, batch_x: Tensor | None = None, batch_y: Tensor | None = None,
    max_num_neighbors: int = 32, num_workers: int = 1, batch_size: int | None = None, ignore_same_index: bool = False,
) -> Tensor:  # fmt: skip
    """Pairs of each point of `y` and those of `x` that are near: how many, values say."""
    x, y = _points(x, y)
    ends = _ends(x, batch_x, batch_size), _ends(y, batch_y, batch_size)
    return points.near_pairs(library, x, y, r, max_num_neighbors, ends, others=ignore_same_index)


def _graph(pairs: Tensor, flow: str) -> tuple[Tensor, Tensor]:
    return (pairs[1], pairs[0]) if flow == "source_to_target" else (pairs[0], pairs[1])


@_provides
def knn_graph(
    x: Tensor, k: int, batch: Tensor | None = None, loop: bool = False, flow: str = "source_to_target",
    cosine: bool = False, num_workers: int = 1, batch_size: int | None = None,
) -> Tensor:  # fmt: skip
    """Edges to the nearest; a point is its own nearest, which is left out."""
    pairs = knn(x, x, k if loop else k + 1, batch, batch, cosine, batch_size=batch_size)
    row, col = _graph(pairs, flow)
    if not loop:
        mask = row != col
        if not is_virtual(x):
            return torch.stack([row[mask], col[mask]])
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
    if ptr is None:
        ptr = torch.tensor([0, src.shape[0]], device=src.device) if batch is None else _batch_ends(batch, batch_size)
    ends = ptr if isinstance(ptr, Tensor) else torch.tensor(ptr, device=src.device)
    source = src.view(src.shape[0], -1).contiguous()
    return points.far_points(library, source, ends, 0.5 if ratio is None else ratio, random_start=random_start)


@_provides
def grid_cluster(pos: Tensor, size: Tensor, start: Tensor | None = None, end: Tensor | None = None) -> Tensor:
    """A voxel of each point; where the grid begins and ends, if nobody says it, is found first."""
    return points.voxels(library, pos.view(pos.shape[0], -1).contiguous(), size.contiguous(), start, end)


def _row_ends(row: Tensor, num_nodes: int) -> Tensor:
    """Return the positions at which the edges of each node begin."""
    degrees = row.new_zeros(num_nodes)
    degrees.scatter_add_(0, row, torch.ones_like(row))
    ends = row.new_zeros(num_nodes + 1)
    torch.cumsum(degrees, 0, out=ends[1:])
    return ends


def _batch_ends(batch: Tensor, size: int | None) -> Tensor:
    return _row_ends(batch, _num_nodes(batch) if size is None else size)


def _num_nodes(*nodes: Tensor) -> int:
    return max(int(each.max()) for each in nodes) + 1


@_provides
def graclus_cluster(row: Tensor, col: Tensor, weight: Tensor | None = None, num_nodes: int | None = None) -> Tensor:
    """A cluster of each node: a proposal of each meanwhile, and in each round two numbers of each."""
    num_nodes = _num_nodes(row, col) if num_nodes is None else num_nodes
    mask = row != col
    row, col = row[mask], col[mask]
    if weight is None:
        order = torch.randperm(row.shape[0], device=row.device)
        row, col = row[order], col[order]
    else:
        weight = weight[mask]
    order = torch.argsort(row)
    row, col = row[order], col[order]
    weight = None if weight is None else weight[order]
    return points.matched(library, _row_ends(row, num_nodes), col, weight)


def _batch(x: Tensor, batch: Tensor | None) -> Tensor:
    return x.new_zeros(len(x), dtype=torch.int64) if batch is None else batch


def _check_examples(batch_x: Tensor, batch_y: Tensor) -> None:
    for name, batch in (("batch_x", batch_x), ("batch_y", batch_y)):
        if bool((batch.diff() < 0).any()):
            raise ValueError(f"'{name}' is not sorted")
    if not batch_x.unique_consecutive().equal(batch_y.unique_consecutive()):
        raise ValueError("Some batch indices occur in 'batch_x' that do not occur in 'batch_y'")


@_provides
def nearest(x: Tensor, y: Tensor, batch_x: Tensor | None = None, batch_y: Tensor | None = None) -> Tensor:
    """Find the nearest point of `y` for each of `x`. Raises ValueError on the host if an example has none of `y`."""
    x, y = (t.view(-1, 1) if t.dim() == 1 else t for t in (x, y))
    if not is_virtual(x) and not (batch_x is None and batch_y is None):
        _check_examples(*(_batch(each, batch) for each, batch in ((x, batch_x), (y, batch_y))))
    ends = []
    for each, batch in ((x, batch_x), (y, batch_y)):
        if batch is None:
            ends.append(torch.tensor([0, each.shape[0]], device=x.device))
        else:
            ends.append(_batch_ends(batch, None))
    x, y = (t.view(t.shape[0], -1).contiguous() for t in (x, y))
    return points.nearest_of_each(library, x, y, (ends[0], ends[1]))


@_provides
def random_walk(
    row: Tensor, col: Tensor, start: Tensor, walk_length: int, p: float = 1, q: float = 1, coalesced: bool = True,
    num_nodes: int | None = None, return_edge_indices: bool = False,
) -> Any:  # fmt: skip
    """Nodes of a walk from each that is given, and its edges; both are made the other way round first."""
    num_nodes = _num_nodes(row, col, start) if num_nodes is None else num_nodes
    if coalesced:
        order = torch.argsort(row * num_nodes + col)
        row, col = row[order], col[order]
    ends = _row_ends(row, num_nodes)
    if not is_virtual(row):
        walked = points.walked_on_host(ends, col, start, walk_length, p, q)
        return walked if return_edge_indices else walked[0]
    library.assume()
    nodes, edges = (start.new_empty(walk_length + more, start.shape[0]) for more in (1, 0))
    drawn = torch.rand(start.shape[0], walk_length, device=start.device) if p == q == 1 else None
    launch((ends, col, start, drawn), (nodes, edges))
    walks = nodes.t().contiguous(), edges.t().contiguous()
    return walks if return_edge_indices else walks[0]

"""Points, their neighbours and clusters, and walks, as torch_cluster and pyg_lib find them.

What is on the host has its values. `ends` say where the points of each example begin, and where the last one ends.
"""

import math
from itertools import pairwise

import torch

from memlint.accelerator import values
from memlint.accelerator.device import is_virtual
from memlint.libraries.library import Library, assume_once, launch

Tensor = torch.Tensor
Ends = tuple[Tensor, Tensor]
_BLUE = 0.53406
"""Share of nodes that propose (graclus_cuda.cu of both)."""


def ends_of_one(x: Tensor) -> Tensor:
    """Return the ends of the points of a single example: int64 [2], 0 and their number."""
    return torch.arange(0, x.shape[0] + 1, x.shape[0], device=x.device)


def nearest_pairs(library: Library, x: Tensor, y: Tensor, k: int, ends: Ends, *, cosine: bool = False) -> Tensor:
    """Each point of `y` and its nearest of `x`, of which there are enough: int64 [2, pairs]."""
    if not is_virtual(x):
        return _nearest_on_host(x, y, k, ends, cosine=cosine)
    row, col = _places(library, x, y, k, ends)
    mask = col != -1
    chosen = torch.empty_like(row), torch.empty_like(col)  # what `masked_select` gives
    launch((row, col, mask), chosen)
    return torch.stack(chosen)


def near_pairs(
    library: Library, x: Tensor, y: Tensor, r: float, most: int, ends: Ends, *, others: bool = False
) -> Tensor:
    """Each point of `y` and those of `x` that are near, of `others` alone if asked: how many, values say."""
    if not is_virtual(x):
        return _near_on_host(x, y, r, most, ends, others=others)
    row, col = _places(library, x, y, most, ends)
    mask = row != -1
    return torch.stack([row.masked_select(mask), col.masked_select(mask)])


def _places(library: Library, x: Tensor, y: Tensor, most: int, ends: Ends) -> tuple[Tensor, Tensor]:
    """A row and a column for each point of `y` and each of its neighbours, as many as there may be."""
    library.assume()
    row, col = (torch.full((y.shape[0] * most,), -1, device=x.device) for _ in range(2))
    launch((x, y, *ends), (row, col))
    return row, col


def _examples(ends: Ends) -> list[tuple[slice, slice]]:
    starts = [each.tolist() for each in ends]
    return list(zip(*([slice(*pair) for pair in pairwise(each)] for each in starts), strict=True))


def _distances(x: Tensor, y: Tensor) -> Tensor:
    """Return the distances of each point of `y` from each of `x`."""
    x, y = (t if t.dtype in {torch.float32, torch.float64} else t.float() for t in (x, y))
    return torch.cdist(y, x, compute_mode="donot_use_mm_for_euclid_dist")


def _nearest_on_host(x: Tensor, y: Tensor, k: int, ends: Ends, *, cosine: bool = False) -> Tensor:
    found = [torch.empty(2, 0, dtype=torch.int64)]
    for of_x, of_y in _examples(ends):
        near, far = x[of_x], y[of_y]
        if cosine:
            distances = 1 - torch.nn.functional.cosine_similarity(far[:, None], near[None], dim=-1)
        else:
            distances = _distances(near, far)
        col = distances.sort(dim=1, stable=True).indices[:, :k] + of_x.start
        row = torch.arange(of_y.start, of_y.stop)[:, None].expand_as(col)
        found.append(torch.stack([row.flatten(), col.flatten()]))
    return torch.cat(found, 1)


def _near_on_host(x: Tensor, y: Tensor, r: float, most: int, ends: Ends, *, others: bool) -> Tensor:
    found = [torch.empty(2, 0, dtype=torch.int64)]
    for of_x, of_y in _examples(ends):
        near = _distances(x[of_x], y[of_y]) < r
        start = torch.tensor([[of_y.start], [of_x.start]])
        if others:
            places = (torch.arange(side.start, side.stop) for side in (of_y, of_x))
            near &= next(places)[:, None] != next(places)
        near &= near.cumsum(1) <= most
        found.append(near.nonzero().t() + start)
    return torch.cat(found, 1)


def nearest_of_each(library: Library, x: Tensor, y: Tensor, ends: Ends) -> Tensor:
    """Find the nearest point of `y` for each point of `x`: int64 [points]."""
    if not is_virtual(x):
        ends_x, ends_y = ends
        return _nearest_on_host(y, x, 1, (ends_y, ends_x))[1]
    library.assume()
    out = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    launch((x, y, *ends), (out,))
    return out


def far_points(library: Library, points: Tensor, ends: Tensor, ratio: float | Tensor, *, random_start: bool) -> Tensor:
    """A share of the points of each example, far from each other; a number a point is kept meanwhile.

    The share is one of all examples, or one of each. How many points these are is rounded up for each (fps_cuda.cu of
    both).
    """
    degree = ends[1:] - ends[:-1]
    places = (degree.float() * ratio).ceil().long().cumsum(0)
    places = torch.cat([ends.new_zeros(1), places])
    if random_start:
        start = (torch.rand(degree.shape, dtype=points.dtype, device=points.device) * degree.float()).long()
    else:
        start = torch.zeros_like(degree)
    if not is_virtual(points):
        return _far_on_host(points, ends.tolist(), places.tolist(), start.tolist())
    library.assume()
    distances = torch.full((points.shape[0],), 5e4, dtype=points.dtype, device=points.device)
    known = values.content(places)
    if known is None and len(degree) > 1:
        assume_once(f"{library.name}.fps is taken to round the number of points once, not for each example")
    total = math.ceil(_share(ratio) * points.shape[0]) if known is None else int(known[-1])
    out = torch.empty(total, dtype=torch.int64, device=points.device)
    launch((points, ends, places, start, distances), (out,))
    return out


def _share(ratio: float | Tensor) -> float:
    return float(ratio.float().mean()) if isinstance(ratio, Tensor) else ratio


def _far_on_host(points: Tensor, ends: list[int], places: list[int], starts: list[int]) -> Tensor:
    chosen = []
    for place, first in enumerate(starts):
        own = points[ends[place] : ends[place + 1]]
        distances = own.new_full((len(own),), torch.inf)
        new = first
        for _ in range(places[place + 1] - places[place]):
            chosen.append(ends[place] + new)
            distances = torch.minimum(distances, (own - own[new]).pow(2).sum(1))
            new = int(distances.argmax())
    return torch.tensor(chosen, dtype=torch.int64)


def voxels(library: Library, points: Tensor, size: Tensor, start: Tensor | None, end: Tensor | None) -> Tensor:
    """A voxel of each point [points, width]; where the grid begins and ends, if nobody says it, is found first."""
    start = points.min(0)[0] if start is None else start.contiguous()
    end = points.max(0)[0] if end is None else end.contiguous()
    if not is_virtual(points):
        numbers = (end - start).div(size, rounding_mode="trunc").long() + 1
        numbers = torch.cat([numbers.new_ones(1), numbers.cumprod(0)])[:-1]
        return (points - start).div(size, rounding_mode="trunc").long().mul_(numbers).sum(1)
    library.assume()
    out = torch.empty(points.shape[0], dtype=torch.int64, device=points.device)
    launch((points, size, start, end), (out,))
    return out


def matched(library: Library, ends: Tensor, col: Tensor, weight: Tensor | None) -> Tensor:
    """A cluster of each node, of two neighbours or of itself: a proposal of each, and in each round two numbers."""
    if not is_virtual(col):
        return _matched_on_host(ends.tolist(), col.tolist(), None if weight is None else weight.tolist())
    library.assume()
    number = ends.numel() - 1
    out, proposal = (torch.full((number,), -1, device=col.device) for _ in range(2))
    colors = torch.full((number,), _BLUE, device=col.device).bernoulli()
    launch((ends, col, weight, colors), (out, proposal))
    return out


def _matched_on_host(ends: list[int], col: list[int], weight: list[float] | None) -> Tensor:
    clusters: dict[int, int] = {}
    for node in torch.randperm(len(ends) - 1).tolist():
        if node in clusters:
            continue
        free = [edge for edge in range(ends[node], ends[node + 1]) if col[edge] != node and col[edge] not in clusters]
        other = node
        if free and weight is None:
            other = col[free[0]]
        elif weight is not None:
            heaviest = max((edge for edge in free if weight[edge] >= 0), key=lambda e: (weight[e], e), default=None)
            other = node if heaviest is None else col[heaviest]
        clusters[node] = clusters[other] = min(node, other)
    return torch.tensor([clusters[node] for node in range(len(ends) - 1)], dtype=torch.int64)


def walked_on_host(
    ends: Tensor, col: Tensor, start: Tensor, length: int, p: float = 1, q: float = 1
) -> tuple[Tensor, Tensor]:
    """Nodes of walks [walks, length + 1] and their edges [walks, length]; a node without any stays, by the edge -1.

    Steps back weigh 1 / `p`, those to no neighbour of the node before 1 / `q` (node2vec).
    """
    of_node, neighbours = ends.tolist(), col.tolist()
    nodes: list[int] = []
    edges: list[int] = []
    for first in start.tolist():
        walk, before = [first], None
        for _ in range(length):
            choices = range(of_node[walk[-1]], of_node[walk[-1] + 1])
            if before is None:
                weights = [1.0] * len(choices)
            else:
                known = {neighbours[edge] for edge in range(of_node[before], of_node[before + 1])}
                weights = [_weight(neighbours[edge], before, known, p, q) for edge in choices]
            edge = choices[int(torch.tensor(weights).multinomial(1))] if choices else -1
            before = walk[-1]
            walk.append(neighbours[edge] if choices else before)
            edges.append(edge)
        nodes += walk
    return torch.tensor(nodes).view(len(start), length + 1), torch.tensor(edges).view(len(start), length)


def _weight(node: int, before: int, known: set[int], p: float, q: float) -> float:
    if node == before:
        return 1 / p
    return 1 if node in known else 1 / q

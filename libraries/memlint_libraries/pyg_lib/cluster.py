"""pyg_lib 0.9.0: neighbours of points, clusters and walks; none has a backward.

csrc/ops/cuda/knn_kernel.cu:101, radius_kernel.cu:54, fps_kernel.cu:76, nearest_kernel.cu:77, cluster_kernel.cu:36,
graclus_kernel.cu:236 and csrc/sampler/cuda/random_walk_kernel.cu:53. They are called as they are, so that what is not
contiguous is refused, where torch_cluster copies it. What lies on the host has its values.
"""

import inspect
import math

import torch

from memlint.accelerator.device import is_virtual
from memlint.libraries.library import launch
from memlint_libraries import points
from memlint_libraries.pyg_lib.checks import check, dispatch, host_alone, library

Tensor = torch.Tensor
_provides = library.provides("pyg_lib.ops")
_HALF, _BOTH = (torch.float16,), (torch.float16, torch.bfloat16)


def _ends(x: Tensor, y: Tensor, of_x: Tensor | None, of_y: Tensor | None) -> points.Ends:
    check(x.is_contiguous() and y.is_contiguous(), "Inputs must be contiguous")
    of_x = points.ends_of_one(x) if of_x is None else of_x
    of_y = points.ends_of_one(y) if of_y is None else of_y
    check(of_x.numel() == of_y.numel(), "ptr_x and ptr_y must have the same number of elements")
    return of_x, of_y


def _dispatch(kernel: str, x: Tensor, *more: torch.dtype) -> None:
    if is_virtual(x):
        dispatch(kernel, x, *more)


@_provides
def knn(
    x: Tensor, y: Tensor, k: int = 1, ptr_x: Tensor | None = None, ptr_y: Tensor | None = None, cosine: bool = False,
    num_workers: int = 1,
) -> Tensor:  # fmt: skip
    """Pairs of each point of `y` and its nearest of `x`, of which there are enough."""
    if is_virtual(x):
        check(k <= 100, "`k` must be <= 100")
    else:
        check(not cosine, "`cosine` argument not supported on CPU")
    ends = _ends(x, y, ptr_x, ptr_y)
    _dispatch("knn_cuda", x, *_HALF)
    return points.nearest_pairs(library, x, y, k, ends, cosine=cosine)


@_provides
def radius(
    x: Tensor, y: Tensor, r: float = 1.0, ptr_x: Tensor | None = None, ptr_y: Tensor | None = None,
    max_num_neighbors: int = 32, num_workers: int = 1, ignore_same_index: bool = False,
) -> Tensor:  # fmt: skip
    """Pairs of each point of `y` and those of `x` that are near: how many, values say."""
    ends = _ends(x, y, ptr_x, ptr_y)
    _dispatch("radius_cuda", x, *_BOTH)
    return points.near_pairs(library, x, y, r, max_num_neighbors, ends, others=ignore_same_index)


@_provides
def nearest(x: Tensor, y: Tensor, ptr_x: Tensor | None = None, ptr_y: Tensor | None = None) -> Tensor:
    """Find the nearest point of `y` for each point of `x`."""
    ends = _ends(x, y, ptr_x, ptr_y)
    _dispatch("nearest_cuda", x)
    return points.nearest_of_each(library, x, y, ends)


@_provides
def fps(src: Tensor, ptr: Tensor, ratio: float = 0.5, random_start: bool = True) -> Tensor:
    """A share of the points of each example, each far from the others."""
    check(src.is_contiguous(), "src must be contiguous")
    check(src.dim() == 2, "src must be of points and their width")
    _dispatch("fps_cuda", src)
    return points.far_points(library, src, ptr, ratio, random_start=random_start)


@_provides
def grid_cluster(pos: Tensor, size: Tensor, start: Tensor | None = None, end: Tensor | None = None) -> Tensor:
    """A voxel of each point [points, width]."""
    check(pos.is_contiguous(), "pos must be contiguous")
    check(pos.dim() == 2, "pos must be of points and their width")
    _dispatch("grid_cluster_cuda", pos, *_BOTH)
    return points.voxels(library, pos, size, start, end)


@_provides
def graclus_cluster(rowptr: Tensor, col: Tensor, weight: Tensor | None = None) -> Tensor:
    """A cluster of each node."""
    if weight is not None:
        _dispatch("_", weight)
    return points.matched(library, rowptr, col, weight)


@_provides
def edge_sample(start: Tensor, rowptr: Tensor, count: int = 0, factor: float = 1.0) -> Tensor:
    """Edges of nodes, so many of each or a share of them; none on a GPU (cpu/edge_sampler_kernel.cpp:58)."""
    host_alone("edge_sample", start, rowptr)
    chosen = [torch.empty(0, dtype=torch.int64)]
    for node in start.tolist():
        first, end = rowptr[node : node + 2].tolist()
        number = count if count >= 1 else math.ceil(factor * (end - first))
        chosen.append(first + torch.randperm(end - first)[:number])
    return torch.cat(chosen)


@library.provides("pyg_lib.sampler")
def random_walk(rowptr: Tensor, col: Tensor, seed: Tensor, walk_length: int, p: float = 1.0, q: float = 1.0) -> Tensor:
    """Nodes of a walk from each that is given; they are made the other way round first, of drawn numbers."""
    check(p == 1 and q == 1, "Uniform sampling required for now")
    if not is_virtual(seed):
        return points.walked_on_host(rowptr, col, seed, walk_length)[0]
    library.assume()
    nodes = rowptr.new_empty(walk_length + 1, seed.shape[0])
    drawn = torch.rand(walk_length, seed.shape[0], device=seed.device)
    launch((rowptr, col, seed, drawn), (nodes,))
    return nodes.t().contiguous()


def _named(name: str, *parameters: str) -> None:
    """Let a function of `pyg_lib.sampler` that is not known be asked for its parameters, as torch_geometric does."""
    function = library.unknown(f"pyg_lib.sampler.{name}")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(parameter, kind) for parameter in parameters])
    setattr(function, "__signature__", signature)  # noqa: B010 -- classes have none as it is
    library.modules["pyg_lib.sampler"][name] = function


_named(
    "neighbor_sample",
    *("rowptr", "col", "seed", "num_neighbors", "node_time", "edge_time", "seed_time", "edge_weight", "csc"),
    *("replace", "directed", "disjoint", "temporal_strategy", "return_edge_id"),
)

"""Groups of rows, as torch_scatter and pyg_lib reduce them: their shapes, and their values on the host."""

from collections.abc import Sequence
from typing import Any

import torch

Tensor = torch.Tensor
CHOOSING = frozenset({"min", "max"})
"""Reductions that say where what they give was found."""
_REDUCTIONS = {"sum": "sum", "mean": "mean", "mul": "prod", "min": "amin", "max": "amax"}


def broadcast(index: Tensor, source: Tensor, dim: int) -> Tensor:
    """The index of rows, or of elements, in the shape of the source: a view."""
    dim = dim + source.dim() if dim < 0 else dim
    if index.dim() == 1:
        index = index[(None,) * dim]
    return index[(..., *(None,) * (source.dim() - index.dim()))].expand(source.size())


def number_of(index: Tensor, dim_size: int | None) -> int:
    """Groups: one more than the last index, which the libraries read from the GPU."""
    if dim_size is not None:
        return dim_size
    return int(index.max()) + 1 if index.numel() else 0


def resized(shape: Sequence[int], dim: int, size: int) -> list[int]:
    """The same shape with another size of one dimension."""
    sizes = list(shape)
    sizes[dim] = size
    return sizes


def trailing(rows: Tensor, like: Tensor) -> Tensor:
    """A number of each row, so that it meets all elements of the row: a view."""
    return rows[(..., *(None,) * (like.dim() - rows.dim()))]


def divided(sums: Tensor, count: Tensor) -> Tensor:
    """Means in the place of sums; those of whole numbers are rounded down."""
    return sums.true_divide_(count) if sums.is_floating_point() else sums.div_(count, rounding_mode="floor")


def at_positions(grad: Tensor, positions: Tensor, shape: Sequence[int], dim: int) -> Tensor:
    """The gradient of `min` and `max`: zeros of one row more, for groups of nothing."""
    made = grad.new_zeros(resized(shape, dim, shape[dim] + 1))
    made.scatter_(dim, positions, grad)
    return made.narrow(dim, 0, shape[dim])


def reduced_on_host(source: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int, reduce: str) -> Any:
    """The values of a reduction, and of `min` and `max` the first positions, by PyTorch's ops."""
    start = source.new_full(resized(source.shape, dim, size), int(reduce == "mul")) if out is None else out.clone()
    made = start.scatter_reduce(
        dim, index, source, _REDUCTIONS[reduce], include_self=out is not None or reduce == "mul"
    )
    made = made if out is None else out.copy_(made)
    if reduce not in CHOOSING:
        return made
    length = source.shape[dim]
    places = torch.arange(length).view(-1, *[1] * (source.dim() - 1 - dim)).expand_as(source)
    places = places.masked_fill(source != made.gather(dim, index), length)
    positions = torch.full_like(made, length, dtype=index.dtype)
    return made.clone(), positions.scatter_reduce(dim, index, places, "amin")  # nobody keeps what may be changed


def gathered_on_host(source: Tensor, index: Tensor, out: Tensor | None, size: int, kind: str) -> Tensor:
    """The values of a row for each of so many rows, of which `index` says the segment."""
    dim = index.dim() - 1
    made = source.gather(dim, segment_of_each(index, kind, resized(source.shape, dim, size)))
    return made if out is None else out.copy_(made)


def segment_of_each(index: Tensor, kind: str, shape: Sequence[int]) -> Tensor:
    """The segment of each element of this shape on the host, by its index or by where segments begin."""
    dim = index.dim() - 1
    index = index.expand(*shape[:dim], index.shape[-1])
    if kind == "csr":
        places = torch.arange(shape[dim]).expand(*index.shape[:-1], -1).contiguous()
        index = torch.searchsorted(index.contiguous(), places, right=True) - 1
    return index[(..., *(None,) * (len(shape) - 1 - dim))].expand(shape)


def first(results: Any) -> Any:
    """The reduction alone, without positions."""
    return results[0] if isinstance(results, tuple) else results

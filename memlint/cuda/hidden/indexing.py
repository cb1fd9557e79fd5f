"""Rows of kernels that gather, scatter, sort, select, cumulate and draw by weight."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from memlint.accelerator.device import scratch
from memlint.cuda.hidden import cub
from memlint.cuda.hidden.table import Steps, contiguous, copy_of, hidden, on_host, sorting_storage
from memlint.cuda.simulated import simulated
from memlint.cuda.versions import torch_version

Tensor = torch.Tensor
INDEX = 8
"""Bytes of an int64."""
MASKS = (torch.bool, torch.uint8)
FEW_INDICES = 3072
"""Number of indices up to which the gradient of an embedding needs no sorting (Embedding.cu)."""
ROWS_PER_PARTIAL = 10
FUSED_BLOCKS_PER_SM = 4
MAX_BLOCK = 1024
MAXIMUM = 2
"""Value of an EmbeddingBag's `mode` that takes the maximum."""


@hidden("index", source="TensorAdvancedIndexing.cpp; recorded")
def _index(x: Tensor, indices: Sequence[Tensor | None]) -> Steps:
    """A copy on the device of each index in the host's memory, and int64 copies of int32 indices."""
    copies = [copy_of(i) for i in indices if i is not None and on_host(i)]
    wide = _as_int64(indices)
    yield
    del wide, copies


@hidden("index", source="TensorAdvancedIndexing.cpp: make_info; run", devices="host")
def _index_of_host(x: Tensor, indices: Sequence[Tensor | None]) -> Steps:
    """Int64 copies of int32 indices."""
    wide = _as_int64(indices)
    yield
    del wide


@hidden(
    "index_put", "index_put_", "_index_put_impl", "_index_put_impl_",
    source="TensorAdvancedIndexing.cpp: make_info; run", devices="host",
)  # fmt: skip
def _index_put_of_host(x: Tensor, indices: Sequence[Tensor | None], *_: Any) -> Steps:
    """Int64 copies of int32 indices."""
    yield
    _as_int64(indices)


def _as_int64(indices: Sequence[Tensor | None]) -> list[Any]:
    """Copy int32 indices to int64, broadcast to the shape of all indices together (make_info)."""
    indexed = [i for i in indices if i is not None]
    if any(i.dtype in MASKS for i in indexed) or not any(i.dtype is torch.int32 for i in indexed):
        return []
    count = math.prod(torch.broadcast_shapes(*(i.shape for i in indexed)))
    return [scratch(INDEX * count) for i in indexed if i.dtype is torch.int32]


@hidden("index_put", "index_put_", "_index_put_impl", "_index_put_impl_", source="Indexing.cu; recorded")
def _index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Steps:
    """With accumulate: linear index, its sorted copy, the original order and a range, 8 bytes an index each.

    CUB's storage. Values that are expanded or not contiguous are copied. With a mask: the positions of its true
    elements, at most as many as there are values.
    """
    yield
    indexed = [i for i in indices if i is not None]
    masks = [i for i in indexed if i.dtype in MASKS]
    if masks:
        if accumulate or values.numel() > 1:  # a single number is written through masked_fill
            selected = [min(i.numel(), values.numel()) for i in masks]
            positions = [scratch(INDEX * n * i.dim()) for n, i in zip(selected, masks, strict=True)]
            del positions
        return
    if not accumulate:
        _as_int64(indices)
        return
    dense = contiguous(x)
    count = math.prod(torch.broadcast_shapes(*(i.shape for i in indexed)))
    linear = None
    for index in indexed:
        if on_host(index):  # computed on the device
            scaled = scratch(INDEX * count)
        else:
            cast = scratch(INDEX * index.numel()) if index.dtype is not torch.int64 else None
            wrapped = scratch(INDEX * count)
            scaled = scratch(INDEX * count)
            del wrapped, cast
        linear = linear or scaled
        del scaled
    rest = [n for i, n in enumerate(x.shape) if i >= len(indices) or indices[i] is None]
    slices = math.prod(rest)
    value = None
    if values.numel() != count * slices or not values.is_contiguous():
        value = scratch(count * slices * values.element_size())
    ordered, original, numbers = (scratch(INDEX * count) for _ in range(3))
    largest = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) // max(slices, 1)
    sorting = scratch(sorting_storage(count, INDEX, INDEX, max(largest.bit_length(), 1)))
    del sorting, numbers, original, ordered, value, linear, dense


@hidden("embedding_dense_backward", source="Embedding.cu, EmbeddingBackwardKernel.cu")
def _embedding_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int = -1, scale_grad_by_freq: bool = False
) -> Steps:
    """Above 3,072 indices: sorted and original order, then for every partial segment its offset and a float32 row.

    From torch 2.11 on, short segments without rows of their own where vocabulary and width are small.
    """
    count, index = indices.numel(), indices.element_size()
    dense = contiguous(grad)
    if count <= FEW_INDICES and not scale_grad_by_freq:
        yield
        del dense
        return
    yield from _summed_by_row(count, index, num_weights, grad, by_frequency=scale_grad_by_freq, bags=False)
    del dense


@hidden("_embedding_bag_backward", source="EmbeddingBag.cu, EmbeddingBackwardKernel.cu")
def _embedding_bag_backward(grad: Tensor, indices: Tensor, *rest: Any) -> Steps:
    """Same as an embedding's above 3,072 indices, for any number of them.

    For a maximum only a gradient's dense copy.
    """
    num_weights, by_frequency, mode = rest[4:7]
    count = indices.numel()
    dense = contiguous(grad)
    if mode == MAXIMUM or not count:
        yield
    else:
        yield from _summed_by_row(
            count, indices.element_size(), num_weights, grad, by_frequency=by_frequency, bags=True
        )
    del dense


def _summed_by_row(count: int, index: int, num_weights: int, grad: Tensor, *, by_frequency: bool, bags: bool) -> Steps:
    """Gradients sorted by row and summed in segments of up to ten, then by row; `index` is the bytes of an index."""
    width, wide = grad.shape[-1], max(grad.element_size(), 4)
    ordered, original, numbers = (scratch(index * count) for _ in range(3))
    sorting = scratch(sorting_storage(count, index, index))
    del sorting, numbers
    frequencies = scratch(index * count) if by_frequency else None
    yield
    segments = min(count, num_weights)
    partials = count // ROWS_PER_PARTIAL + segments
    starts, num_segments = scratch(index * count), scratch(8)
    unique = scratch(index * count)
    selecting = scratch(cub.scan(count, index))
    del selecting, unique
    per_segment, offsets = scratch(index * segments), scratch(index * segments)
    scratch(cub.scan(segments, index))
    num_partials, partial_starts = scratch(8), scratch(index * partials)
    if not bags and _accumulates_at_once(segments, partials, width):
        owners = scratch(index * partials)
        rows = scratch(num_weights * width * wide if grad.element_size() < 4 else 0)
    else:
        owners, rows = scratch(0), scratch(partials * width * wide)
    del rows, owners, partial_starts, num_partials, offsets, per_segment, num_segments, starts
    del frequencies, original, ordered


def _accumulates_at_once(segments: int, partials: int, width: int) -> bool:
    warped = -(-width // 32) * 32
    blocks = -(-segments * warped // min(warped, MAX_BLOCK))
    return (
        torch_version() >= (2, 11)
        and blocks < simulated().device.num_sms * FUSED_BLOCKS_PER_SM
        and partials > 4 * blocks
        and not torch.are_deterministic_algorithms_enabled()
    )


@hidden("nonzero", source="Nonzero.cu; recorded")
def _nonzero(x: Tensor) -> Steps:
    """The count and the temporary storage of counting, then that of selecting."""
    dense = contiguous(x)
    count = scratch(4)
    scratch(cub.reduce(x.numel(), simulated().device.num_sms, simulated().device.threads_per_sm))
    yield
    selecting = scratch(cub.scan(x.numel(), INDEX if torch_version() >= (2, 12) else 4))
    del selecting, count, dense


@hidden("masked_select", source="IndexKernel.cpp: nonzero, then index")
def _masked_select(x: Tensor, mask: Tensor) -> Steps:
    """Positions of the mask's true elements, 8 bytes a dimension each; every element is assumed to be true."""
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    positions = scratch(INDEX * math.prod(shape) * max(len(shape), 1))
    yield
    del positions


@hidden("sort", source="Sort.cpp, SortStable.cu")
def _sort(x: Tensor, *args: Any, **kwargs: Any) -> Steps:
    """Rows up to 4,096: a range. Longer: the original order, packed with its row if rows are few, and CUB's storage."""
    yield
    if not x.dim() or not x.numel():
        return
    dims = [kwargs["dim"]] if "dim" in kwargs else [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    dim = dims[0] if dims else -1
    take_to_sort(x.numel(), x.shape[dim], x.element_size(), is_dense=x.stride(dim) == 1)


def take_to_sort(numel: int, length: int, item: int, *, is_dense: bool) -> None:
    """Allocate and free the memory of sorting rows of `length` elements of `item` bytes."""
    if length <= 4096:
        scratch(INDEX * length)
        return
    moved = None if is_dense else scratch(numel * item)
    rows = numel // length
    if rows == 1 or length >= 1_000_000:
        order = scratch(INDEX * length)
        sorting = scratch(sorting_storage(length, item, INDEX))
        del sorting, order
    elif rows < 128:
        packed, repacked, keys = scratch(8 * numel), scratch(8 * numel), scratch(numel * item)
        sorting = scratch(sorting_storage(numel, item, 8))
        del sorting, keys
        sorting = scratch(sorting_storage(numel, 8, 0, (rows - 1).bit_length()))
        del sorting, repacked, packed
    else:
        order = scratch(INDEX * numel)
        sorting = scratch(cub.segmented_radix_sort(numel, item, INDEX))
        del sorting, order
    del moved


@hidden("_unique2", "_unique", source="Unique.cu, UniqueCub.cu")
def _unique(x: Tensor, in_order: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Steps:
    """Sorted values, their original order and a range if positions are requested, and CUB's storage."""
    count, item = x.numel(), x.element_size()
    ordered = scratch(item * count)
    order = numbers = None
    if return_inverse:
        order, numbers = scratch(INDEX * count), scratch(INDEX * count)
    sorting = scratch(sorting_storage(count, item, INDEX if return_inverse else 0))
    del sorting, numbers
    yield
    marks = scratch(INDEX * count) if return_inverse else None
    number = scratch(INDEX)
    scratch(cub.scan(count, INDEX) if return_counts else cub.unique(count))
    del number, marks, order, ordered


@hidden("isin", source="TensorCompare.cpp: isin_sorting, isin_default_kernel_gpu; measured on H200")
def _is_in(x: Any, others: Any, *_: Any, **__: Any) -> Steps:
    """Each element compared with each other one, of which any; with many others the elements are sorted.

    Then in order, their original order, a range, and CUB's storage.
    """
    yield
    if not isinstance(x, torch.Tensor) or not isinstance(others, torch.Tensor):
        return
    if others.numel() < 10 * x.numel() ** 0.145:
        compared, found = scratch(x.numel() * others.numel()), scratch(x.numel())
        del found, compared
    else:
        taken = copy_of(x), scratch(INDEX * x.numel()), scratch(INDEX * x.numel())
        scratch(sorting_storage(x.numel(), x.element_size(), INDEX))
        del taken


@hidden("unique_consecutive", source="Unique.cu; measured on H200")
def _unique_neighbours(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, *_: Any, **__: Any
) -> Steps:
    """The number of values, and CUB's storage."""
    yield
    if not return_inverse and not return_counts:
        number = scratch(INDEX)
        scratch(cub.unique(x.numel()))
        del number


@hidden("cumsum", "cumprod", source="ReduceOps.cpp, ScanUtils.cuh; recorded")
def _cumulate(x: Tensor, dim: int, *, dtype: torch.dtype | None = None, **_: Any) -> Steps:
    """Input cast to the result's dtype (bool and integers: int64) or made contiguous; CUB's storage for one row."""
    yield
    result = dtype or (x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64)
    cast = copy_of(x, result.itemsize) if result is not x.dtype else contiguous(x)
    if x.dim() and x.numel() == x.shape[dim]:
        scratch(cub.scan(x.numel(), result.itemsize))
    del cast

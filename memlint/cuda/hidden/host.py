"""Rows of the host's other kernels, and of some kernels that are the same on every device."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from memlint.accelerator.device import scratch
from memlint.accelerator.inference import infer
from memlint.accelerator.kernel import kernel_of
from memlint.accelerator.ledger import Entry
from memlint.accelerator.private import suggest_memory_format
from memlint.cuda.hidden.table import Steps, contiguous, copy_of, hidden
from memlint.cuda.kernels.host import half_product

Tensor = torch.Tensor
INDEX = 8
"""Bytes of an int64."""
MAXIMUM = 2
"""Value of an EmbeddingBag's `mode` that takes the maximum."""
SMALL_OUTPUT = 128
"""Largest sum of its sides at which an interpolated image goes through channels_last, in one thread
(UpSampleKernel.cpp)."""


@hidden("sort", source="Sorting.cpp: indices are copied from a range; measured", devices="host")
def _sort(x: Tensor, *args: Any, **kwargs: Any) -> Steps:
    """A range as long as the input."""
    yield
    dims = [kwargs["dim"]] if "dim" in kwargs else [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    scratch(INDEX * x.shape[dims[0] if dims else -1] if x.dim() else 0)


@hidden("kthvalue", source="Sorting.cpp", devices="host")
def _kthvalue(x: Tensor, *_: Any, **__: Any) -> Steps:
    """A copy to reorder, and an index for each element."""
    yield
    copy, indices = copy_of(x), copy_of(x, INDEX)
    del copy, indices


@hidden("count_nonzero", source="TensorAdvancedIndexing.cpp, ReduceOps.cpp", devices="host")
def _count_nonzero(x: Tensor, dim: Any = None) -> Steps:
    """Along dimensions: the comparison with zero as bool, then as int64."""
    different = scratch(x.numel()) if dim and x.dtype is not torch.bool else None
    yield
    cast = copy_of(x, INDEX) if dim else None
    del cast, different


@hidden("masked_select", source="TensorAdvancedIndexing.cpp: masked_select_out_impl_cpu", devices="host")
def _masked_select(x: Tensor, mask: Tensor) -> Steps:
    """The mask as int64 to count it; then this and its sums, unless one thread reads contiguous operands."""
    numel = math.prod(torch.broadcast_shapes(x.shape, mask.shape))
    scratch(INDEX * numel)
    yield
    both = 2 * INDEX * numel
    in_order = x.shape == mask.shape and x.is_contiguous() and mask.is_contiguous()
    sums = scratch(0, (0, both)) if in_order else scratch(both)
    del sums


@hidden(
    *("gather", "scatter_add", "scatter_add_"), source="TensorAdvancedIndexing.cpp", versions="2.13", devices="host"
)
def _gather(x: Tensor, dim: int, index: Tensor, *_: Any, **__: Any) -> Steps:
    """Indices as int64."""
    yield
    if index.dtype is not torch.int64:
        copy_of(index, INDEX)


@hidden("scatter_reduce", "index_reduce", source="TensorAdvancedIndexing.cpp: means are counted", devices="any")
def _reduced_mean(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True, **_: Any
) -> Steps:
    """For a mean: how many values were added to each element, ones to count with, and a mask of zero counts."""
    yield
    if reduce == "mean":
        counts, ones = copy_of(x), copy_of(source)
        if index.dim() < x.dim():  # index_reduce
            del ones
        empty = scratch(x.numel())
        del counts, empty


@hidden("searchsorted", "bucketize", source="BucketizationUtils.h", devices="any")
def _searchsorted(first: Tensor, second: Tensor, *_: Any, sorter: Tensor | None = None, **__: Any) -> Steps:
    """Copies of operands that are not contiguous."""
    yield
    copies = [contiguous(t) for t in (first, second, sorter) if isinstance(t, torch.Tensor)]
    del copies


@hidden("bincount", source="SummaryOps.cpp, SummaryOps.cu", devices="any")
def _bincount(x: Tensor, weights: Tensor | None = None, *_: Any) -> Steps:
    """Weights cast to float64 if they are not floating point."""
    is_cast = weights is not None and weights.dtype not in (torch.float32, torch.float64)
    cast = copy_of(x, INDEX) if is_cast else None
    yield
    del cast


@hidden("unfold_backward", source="UnfoldBackward.h", devices="any")
def _unfold_backward(grad: Tensor, size: Sequence[int], dim: int, *_: Any) -> Steps:
    """A range as long as the dimension."""
    yield
    if size:
        scratch(INDEX * size[dim])


@hidden("isin", source="TensorCompare.cpp: isin_sorting; measured", devices="host")
def _isin(elements: Any, tests: Any, *, assume_unique: bool = False, **_: Any) -> Steps:
    """For many test elements: the unique values of both operands, sorted together."""
    tensors = isinstance(elements, torch.Tensor) and isinstance(tests, torch.Tensor)
    entries: list[Entry] = []
    if tensors and tests.numel() >= 10 * elements.numel() ** 0.145:
        most, size = elements.numel() + tests.numel(), elements.element_size()
        inverse = 0 if assume_unique else INDEX * elements.numel()
        highest = inverse + most * (2 * size + 2 * INDEX)
        entries.append(scratch(highest, (inverse, highest)))
    entries.clear()
    yield


@hidden("multinomial", source="Distributions.cpp", devices="host")
def _multinomial(x: Tensor, num_samples: int, replacement: bool = False, **_: Any) -> Steps:
    """Without replacement: exponential numbers to divide by, and the largest quotients."""
    yield
    size = x.element_size() * (x.numel() // x.shape[-1])
    scratch(0 if replacement else size * (x.shape[-1] + num_samples))


ROWS_OF_BLOCK = ((768, 256), (192, 64), (1, 32))
"""Pairs of a number of queries and the block of queries that attention takes from it on (FlashAttentionKernel.cpp)."""
COLUMNS_OF_BLOCK = 512
"""Number of keys in a block of attention."""


@hidden("_scaled_dot_product_flash_attention_for_cpu", source="FlashAttentionKernel.cpp; measured", devices="host")
def _attention(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> Steps:
    """A thread's block of logits, maxima, sums and results in float32; for halves, the rounded logits too."""
    yield
    rows, columns = _block(q, k)
    sums = scratch(rows * (columns + 2 + q.shape[-1]) * max(q.element_size(), 4))
    rounded = [scratch(rows * columns * 2), half_product(q.dtype, rows, q.shape[-1], columns)] if _is_half(q) else []
    del rounded, sums


@hidden(
    "_scaled_dot_product_flash_attention_for_cpu_backward", source="FlashAttentionKernel.cpp; measured", devices="host"
)
def _attention_backward(grad: Tensor, q: Tensor, k: Tensor, *_: Any, **__: Any) -> Steps:
    """The gradient as [batch, rows, heads, size]; a thread's block of logits, their gradients, a number for each row.

    The block is in float32; for halves a rounded one is added.
    """
    yield
    copy = contiguous(grad.transpose(1, 2))
    rows, columns = _block(q, k)
    wide = max(q.element_size(), 4)
    logits = [scratch(2 * rows * columns * wide), scratch(rows * wide)]
    if _is_half(q):
        logits += [scratch(4 * rows * columns), half_product(q.dtype, rows, columns, q.shape[-1])]
    del logits, copy


def _block(q: Tensor, k: Tensor) -> tuple[int, int]:
    """Number of queries and of keys in a block of attention."""
    rows, columns = q.shape[2], k.shape[2]
    return min(rows, next((n for least, n in ROWS_OF_BLOCK if rows >= least), 0)), min(columns, COLUMNS_OF_BLOCK)


def _is_half(x: Tensor) -> bool:
    return x.dtype in (torch.bfloat16, torch.float16)


@hidden("_cdist_forward", source="Distance.cpp: cdist_impl", devices="any")
def _distances(x: Tensor, y: Tensor, *_: Any) -> Steps:
    """Both operands expanded to one batch and made contiguous."""
    copies = _expanded(x, y)
    yield
    del copies


@hidden("_cdist_backward", source="Distance.cpp", devices="any")
def _distances_backward(_grad: Tensor, x: Tensor, y: Tensor, *_: Any) -> Steps:
    """Both operands expanded to one batch and made contiguous."""
    copies = _expanded(x, y)
    yield
    del copies


def _expanded(x: Tensor, y: Tensor) -> list[Entry]:
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    size = math.prod(batch)
    return [
        scratch(size * t.shape[-2] * t.shape[-1] * t.element_size())
        for t in (x, y)
        if size and (t.shape[:-2] != batch or not t.is_contiguous())
    ]


@hidden("_embedding_bag", "_embedding_bag_forward_only", source="EmbeddingBag.cpp; measured", devices="host")
def _embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, *rest: Any, **_: Any) -> Steps:
    """A sum that finds the bag of each index, unless a fast path needs none; for a maximum, ends of bags."""
    shapes = infer(kernel_of(torch.ops.aten._embedding_bag.default), (weight, indices, offsets, *rest), {})
    if math.prod(shapes[1].shape):  # bags; their sizes and maxima are allocated after them
        output = scratch(math.prod(shapes[0].shape) * weight.element_size())
        bags, finding = _number_of_each(indices), _number_of_each(indices)
        del finding, bags, output
    yield
    if rest[1:] and rest[1] == MAXIMUM:
        _number_of_each(offsets)


def _number_of_each(numbers: Tensor) -> Entry:
    """Allocate one more number than there are `numbers`."""
    return scratch(numbers.element_size() * (numbers.numel() + 1))


@hidden("_embedding_bag_backward", source="EmbeddingBag.cpp; measured", devices="host")
def _embedding_bag_backward(grad: Tensor, indices: Tensor, offsets: Tensor, bags: Tensor, *rest: Any) -> Steps:
    """The bag of each index if the forward kept none, then bags and indices in order; for maxima, the chosen values."""
    mode, weights = rest[4], rest[6]
    summed = mode != MAXIMUM
    bag_numbers = _number_of_each(indices) if summed and not bags.numel() else None
    yield
    size = indices.element_size()
    picked = None if summed else scratch(grad.numel() * (size + grad.element_size()) + size * offsets.numel())
    ordered = [scratch(size * indices.numel()) for _ in range(3)] if summed else []
    if summed and weights is not None:
        ordered.append(copy_of(weights))
    del ordered, picked, bag_numbers


@hidden("_embedding_bag_per_sample_weights_backward", source="EmbeddingBag.cpp; measured", devices="host")
def _weights_of_bags(grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, bags: Tensor, *_: Any) -> Steps:
    """The bag of each index if the forward kept none."""
    yield
    bag_numbers = [_number_of_each(indices) for _ in range(0 if bags.numel() else 2)]
    del bag_numbers


@hidden("histc", source="Histogram.cpp; measured", devices="host")
def _histc(x: Tensor, bins: int = 100, low: float = 0, high: float = 0) -> Steps:
    """A copy of an input that is not contiguous, another to find its extremes; edges of bins, a thread's counts."""
    copy = contiguous(x)
    yield
    edges = scratch((bins + 1) * x.element_size())
    if low == high:
        contiguous(x)
    counts = scratch(bins * x.element_size())
    del edges, counts, copy


_TAPS = {
    "nearest": 1,
    "nearest_exact": 1,
    "_nearest_exact": 1,
    "linear": 2,
    "bilinear": 2,
    "trilinear": 2,
    "bicubic": 4,
}


def _register_interpolation(op: str, taps: int) -> None:
    @hidden(op, source="UpSampleKernel.cpp; measured", devices="host")
    def _interpolation(x: Tensor, size: Sequence[int], *_: Any) -> Steps:
        """For each output position along each side: the inputs it reads and their weights.

        Small images use channels_last.
        """
        yield
        numel = math.prod((*x.shape[:2], *size))
        weights = scratch(sum(size) * taps * (INDEX + x.element_size()))
        if len(size) == 2 and sum(size) <= SMALL_OUTPUT and taps == 2:
            through = (x.numel() + numel) * x.element_size()
            scratch(0, (0, through))
        del weights


for _name in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d"):
    _register_interpolation(f"upsample_{_name}", _TAPS[_name[:-2]])
for _name in ("nearest_exact1d", "nearest_exact2d", "nearest_exact3d"):
    _register_interpolation(f"_upsample_{_name}", 1)


@hidden("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", source="UpSampleKernel.cpp", devices="host")
def _antialiased(x: Tensor, size: Sequence[int], *_: Any) -> Steps:
    """The image after its width has changed, if both sides change, with the weights of one side."""
    yield
    changed = [(n, m) for n, m in zip(x.shape[-2:], size, strict=True) if n != m]
    width = scratch(math.prod((*x.shape[:-1], size[-1])) * x.element_size()) if len(changed) == len(size) else None
    taps = [(m, 2 * math.ceil(max(n / m, 1)) + 1) for n, m in changed]
    weights = scratch(max((m * (4 * INDEX + n * x.element_size()) for m, n in taps), default=0))
    del weights, width


@hidden(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    source="Normalization.cpp; measured",
    devices="host",
)
def _batch_norm(x: Tensor, *rest: Any) -> Steps:
    """Scale and shift of every channel."""
    yield
    scale, shift = (scratch(4 * x.shape[1]) for _ in range(2))
    del scale, shift


@hidden(
    *("native_batch_norm_backward", "batch_norm_backward"),
    source="Normalization.cpp: batch_norm_backward_cpu; measured",
    devices="host",
)
def _batch_norm_backward(grad: Tensor, x: Tensor, *rest: Any) -> Steps:
    """A buffer as large as the input, unless operands have different layouts or the input needs no gradient."""
    yield
    wanted = next(each for each in rest if isinstance(each, (list, tuple)))
    in_order = all(t.is_contiguous() or t.is_contiguous(memory_format=suggest_memory_format(t)) for t in (grad, x))
    if wanted[0] and in_order and suggest_memory_format(grad) == suggest_memory_format(x):
        copy_of(x)


@hidden("native_group_norm", source="group_norm_kernel.cpp; measured", devices="host")
def _group_norm(x: Tensor, *_: Any) -> Steps:
    """With channels last: scale and shift for every channel of every sample."""
    yield
    if suggest_memory_format(x) is not torch.contiguous_format:
        scratch(2 * x.shape[0] * x.shape[1] * max(x.element_size(), 4))


@hidden("native_group_norm_backward", source="group_norm_kernel.cpp: ds, db", devices="host")
def _group_norm_backward(grad: Tensor, x: Tensor, *rest: Any) -> Steps:
    """Two sums for every channel of every sample."""
    yield
    scratch(2 * x.shape[0] * x.shape[1] * max(x.element_size(), 4))


@hidden("avg_pool2d_backward", "_adaptive_avg_pool2d_backward", source="AvgPoolKernel.cpp; measured", devices="host")
@hidden("max_pool2d_with_indices_backward", source="MaxPoolKernel.cpp; measured", devices="host")
@hidden("reflection_pad2d_backward", "replication_pad2d_backward", source="PaddingKernel.cpp; measured", devices="host")
def _in_layout_of_gradient(grad: Tensor, x: Tensor, *rest: Any) -> Steps:
    """Copies of the gradient, of indices and of the result that are not dense in the layout the gradient suggests."""
    yield
    layout = suggest_memory_format(grad)
    read = [t for t in (grad, *rest) if isinstance(t, torch.Tensor) and not t.is_contiguous(memory_format=layout)]
    copies = [copy_of(t) for t in (*read, *([x] if suggest_memory_format(x) != layout else []))]
    del copies


@hidden("adaptive_max_pool2d_backward", source="AdaptiveMaxPoolKernel.cpp; measured", devices="host")
def _adaptive_max_pool_backward(grad: Tensor, x: Tensor, *_: Any) -> Steps:
    """A copy of a gradient that is not in the layout the input's strides suggest."""
    yield
    if not grad.is_contiguous(memory_format=suggest_memory_format(x)):
        copy_of(grad)


@hidden("upsample_bicubic2d_backward", source="UpSampleBicubic2d.cpp; measured", devices="host")
def _bicubic_backward(grad: Tensor, *_: Any) -> Steps:
    """A copy of a gradient that is not contiguous."""
    yield
    contiguous(grad)


@hidden("mse_loss", "smooth_l1_loss", "huber_loss", source="Loss.cpp; measured", devices="host")
def _elementwise_loss(x: Tensor, target: Tensor, reduction: int = 1, *_: Any) -> Steps:
    """The loss of every element, and its mean."""
    yield
    shape = torch.broadcast_shapes(x.shape, target.shape)
    scratch(math.prod(shape) * x.element_size() if reduction else 0)


@hidden("_scaled_mm", "_scaled_mm_v2", source="Blas.cpp: _scaled_mm_cpu; measured", devices="host")
def _scaled_product(a: Tensor, b: Tensor, *rest: Any, **_: Any) -> Steps:
    """The second operand made contiguous, both in float32, the product in float32 and, cast, in the result's dtype."""
    yield
    dtype = next((each for each in rest if isinstance(each, torch.dtype)), a.dtype)
    operands = [copy_of(b), copy_of(a, 4), copy_of(b, 4)]
    product = scratch(max((4 + dtype.itemsize) * a.shape[0] * b.shape[1], 4 * b.numel()))
    del product, operands

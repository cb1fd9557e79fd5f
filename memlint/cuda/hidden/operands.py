"""Rows of kernels that first copy an operand into the layout they read: copies of operands that are not contiguous.

Read from aten/src/ATen/native/cuda of torch 2.4 and 2.7, in part also of 2.11: `.contiguous()` and
`expect_contiguous()`. docs/how-it-works.md lists those that are elsewhere or left out.
"""

import math
from functools import partial
from typing import Any

import torch

from memlint.accelerator.device import scratch
from memlint.accelerator.ledger import Entry
from memlint.accelerator.private import DisableTorchFunction, suggest_memory_format
from memlint.cuda.hidden import cub
from memlint.cuda.hidden.indexing import take_to_sort
from memlint.cuda.hidden.reductions import stage
from memlint.cuda.hidden.table import Steps, copy_of, hidden

Tensor = torch.Tensor
_hidden = partial(hidden, versions="2.4 to 2.11")
FEWEST_CHANNELS = 4
"""Number of channels from which CUDA's upsampling uses channels_last kernels (UpSampleNearest2d.cu,
UpSampleBilinear2d.cu)."""
BATCH_AND_CHANNELS = 2
BATCHED = 4
"""Number of dimensions of images with batch and channels."""


def _copies(*operands: Tensor, layout: torch.memory_format = torch.contiguous_format) -> list[Entry]:
    return [copy_of(x) for x in operands if not x.is_contiguous(memory_format=layout)]


@_hidden(
    *("reflection_pad1d", "reflection_pad2d", "reflection_pad1d_backward", "reflection_pad2d_backward"),
    source="ReflectionPad.cu; recorded (2d)",
)
@_hidden("reflection_pad3d", source="ReflectionPad.cu")
@_hidden("avg_pool3d", "avg_pool3d_backward", source="AveragePool3d.cu")
@_hidden("_adaptive_avg_pool3d_backward", source="AdaptiveAveragePooling3d.cu")
@_hidden("adaptive_max_pool3d_backward", source="AdaptiveMaxPooling3d.cu")
@_hidden("upsample_linear1d_backward", source="UpSampleLinear1d.cu")
@_hidden("upsample_bicubic2d_backward", source="UpSampleBicubic2d.cu")
@_hidden("upsample_trilinear3d_backward", source="UpSampleTrilinear3d.cu")
@_hidden("upsample_nearest1d", "_upsample_nearest_exact1d", source="UpSampleNearest1d.cu")
@_hidden("upsample_nearest1d_backward", "_upsample_nearest_exact1d_backward", source="UpSampleNearest1d.cu")
@_hidden("_upsample_bilinear2d_aa_backward", source="UpSampleBilinear2d.cu")
@_hidden("_upsample_bicubic2d_aa_backward", source="UpSampleBilinear2d.cu")
@_hidden("upsample_nearest3d_backward", "_upsample_nearest_exact3d_backward", source="UpSampleNearest3d.cu")
@_hidden("nonzero_static", source="Nonzero.cu")
def _dense_first(x: Tensor, *_: Any, **__: Any) -> Steps:
    """A copy of the first operand if it is not contiguous, channels_last included."""
    yield
    _copies(x)


@_hidden("kthvalue", source="Sorting.cpp")
@_hidden("im2col", "col2im", source="Im2Col.cu, Col2Im.cu")
@_hidden("roll", source="TensorTransformations.cu")
def _dense_before(x: Tensor, *_: Any, **__: Any) -> Steps:
    """A copy of the first operand if it is not contiguous, made before the output."""
    copies = _copies(x)
    yield
    del copies


@_hidden("median", source="Sorting.cpp: median_impl, median_with_indices_impl")
def _median(x: Tensor, dim: int | None = None, *_: Any, **__: Any) -> Steps:
    """Along a dimension a copy of an input that is not contiguous, else of all elements sorted; before the output."""
    copies: list[Any] = _copies(x) if dim is not None else _sorted(x)
    yield
    del copies


@_hidden("nanmedian", source="Sorting.cpp: median_impl, median_with_indices_impl")
def _nanmedian(x: Tensor, dim: int | None = None, *_: Any, **__: Any) -> Steps:
    """Same as the median; over all elements also a mask of NaNs, and their number."""
    copies: list[Any] = _copies(x) if dim is not None else _sorted(x)
    if dim is None:
        nans, counted = scratch(x.numel()), scratch(8 * x.numel())
        stage(x, None, 8, (8,), item=8)
        del nans, counted
    yield
    del copies


def _sorted(x: Tensor) -> list[Entry]:
    """A copy of all elements in order: the dense input, the indices and the memory of sorting are freed."""
    dense, sorted_copy, indices = _copies(x), copy_of(x), scratch(8 * x.numel())
    take_to_sort(x.numel(), x.numel(), x.element_size(), is_dense=True)
    del dense, indices
    return [sorted_copy]


@_hidden("rrelu_with_noise", "rrelu_with_noise_", source="RreluWithNoise.cu")
def _random_relu(
    x: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *_: Any, **__: Any
) -> Steps:
    """In training, copies of an input and of noise that are not contiguous."""
    yield
    if training:
        _copies(x, noise)


@_hidden("unique_dim", "unique_dim_consecutive", source="Unique.cu: unique_dim_cuda_template")
def _unique_rows(x: Tensor, dim: int, *_: Any, **__: Any) -> Steps:
    """A copy with the searched dimension first, unless its layout is such already."""
    copies = _copies(x.movedim(dim, 0))
    yield
    del copies


@_hidden("mode", source="TensorModeKernel.cpp")
def _mode(x: Tensor, dim: int = -1, *_: Any) -> Steps:
    """A copy with the searched dimension as the fastest."""
    yield
    if x.dim() and x.shape[dim] > 1:
        _copies(x.transpose(dim, -1))


@_hidden("_adaptive_avg_pool2d", source="AdaptiveAveragePooling.cu")
def _adaptive_average_pool(x: Tensor, *_: Any) -> Steps:
    """A copy of a batch that is neither contiguous nor channels_last."""
    yield
    if x.dim() == BATCHED and _layout(x) is torch.contiguous_format:
        _copies(x)


@_hidden("_adaptive_avg_pool2d_backward", source="AdaptiveAveragePooling.cu")
def _adaptive_average_pool_backward(grad: Tensor, x: Tensor) -> Steps:
    """A copy of a gradient that is not contiguous, such as that of a mean, unless the input is channels_last."""
    yield
    if _layout(x) is torch.contiguous_format:
        _copies(grad)


@_hidden("_adaptive_avg_pool3d", "adaptive_max_pool3d", source="AdaptiveAveragePooling3d.cu")
def _dense_batch(x: Tensor, output_size: Any) -> Steps:
    """A copy of a batch that is not contiguous; a single image is read in its own layout."""
    yield
    if x.dim() == len(output_size) + BATCH_AND_CHANNELS:
        _copies(x)


@_hidden("adaptive_max_pool2d", source="AdaptiveMaxPooling2d.cu; measured on H200")
def _adaptive_max_pool(x: Tensor, output_size: Any) -> Steps:
    """For a batch with channels last the results in the usual layout, which are copied; a copy of the batch."""
    yield
    if x.dim() == BATCHED:
        results = math.prod((*x.shape[:BATCH_AND_CHANNELS], *output_size))
        dense = [] if _layout(x) is torch.contiguous_format else [scratch(results * n) for n in (x.element_size(), 8)]
        _copies(x)
        del dense


@_hidden("adaptive_max_pool2d_backward", source="AdaptiveMaxPooling2d.cu; measured on H200")
def _adaptive_max_pool_backward(grad: Tensor, x: Tensor, indices: Tensor) -> Steps:
    """Copies of a gradient and of indices that are not contiguous, and with channels last of the result."""
    yield
    copies = _copies(grad, indices)
    if _layout(x) is not torch.contiguous_format:
        copies.append(copy_of(x))
    del copies


@_hidden("avg_pool2d", source="AveragePool2d.cu")
@_hidden("max_pool2d_with_indices", source="DilatedMaxPool2d.cu")
@_hidden("max_pool3d_with_indices", source="DilatedMaxPool3d.cu")
def _pool(x: Tensor, *_: Any) -> Steps:
    """A copy of an input that is not dense in the layout its strides suggest."""
    yield
    _copies(x, layout=_layout(x))


@_hidden("avg_pool2d_backward", source="AveragePool2d.cu")
def _average_pool_backward(grad: Tensor, x: Tensor, *_: Any) -> Steps:
    """Copies of the input and of the gradient that are not in the layout the input's strides suggest."""
    yield
    _copies(x, grad, layout=_layout(x))


@_hidden("max_pool2d_with_indices_backward", source="DilatedMaxPool2d.cu")
def _max_pool_backward(grad: Tensor, x: Tensor, *rest: Any) -> Steps:
    """Same as for the average, and a copy of the indices."""
    yield
    _copies(x, grad, rest[-1], layout=_layout(x))


@_hidden("max_pool3d_with_indices_backward", source="DilatedMaxPool3d.cu")
def _max_pool3d_backward(grad: Tensor, x: Tensor, *rest: Any) -> Steps:
    """Copies of the gradient and of the indices that are not in the layout the input's strides suggest."""
    yield
    _copies(grad, rest[-1], layout=_layout(x))


@_hidden("max_unpool2d", "max_unpool3d", source="MaxUnpooling.cu")
def _max_unpool(x: Tensor, indices: Tensor, *_: Any) -> Steps:
    """Copies of values and indices that are not contiguous, made before the output."""
    copies = _copies(x, indices)
    yield
    del copies


@_hidden("upsample_nearest2d", "_upsample_nearest_exact2d", source="UpSampleNearest2d.cu")
@_hidden("upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward", source="UpSampleNearest2d.cu")
def _upsample_nearest(x: Tensor, size: Any, *rest: Any, **_: Any) -> Steps:
    """A copy of an operand that is not in the kernel's layout; below 4 channels a copy of the result as well."""
    yield
    copies: list[Entry] = []
    result = tuple(rest[0] if rest and isinstance(rest[0], (list, tuple)) and len(rest[0]) == x.dim() else size)
    if tuple(x.shape[-len(result) :]) != result:
        copies = _upsampled(x, result)
    del copies


@_hidden("upsample_nearest3d", "_upsample_nearest_exact3d", source="UpSampleNearest3d.cu")
def _upsample_nearest3d(x: Tensor, size: Any, *_: Any, **__: Any) -> Steps:
    """A copy of an input that is not contiguous; if it is channels_last, a copy of the result as well."""
    yield
    result = math.prod((*x.shape[:BATCH_AND_CHANNELS], *size)) * x.element_size()
    rearranged = None if _layout(x) is torch.contiguous_format else scratch(result)
    copies = _copies(x)
    del copies, rearranged


def _upsampled(x: Tensor, result: tuple[int, ...]) -> list[Entry]:
    layout = _layout(x)
    if layout is torch.channels_last and x.shape[1] >= FEWEST_CHANNELS:
        return _copies(x, layout=layout)
    numel = math.prod(result) if len(result) == x.dim() else math.prod((*x.shape[: -len(result)], *result))
    rearranged = [scratch(numel * x.element_size())] if layout is torch.channels_last else []
    return rearranged + _copies(x)


@_hidden("upsample_bilinear2d", source="UpSampleBilinear2d.cu")
def _upsample_bilinear(x: Tensor, *_: Any) -> Steps:
    """A copy of a channels_last input that is not dense; others are read in their own layout."""
    yield
    if _layout(x) is torch.channels_last and x.shape[1] >= FEWEST_CHANNELS:
        _copies(x, layout=torch.channels_last)


@_hidden("upsample_bilinear2d_backward", source="UpSampleBilinear2d.cu")
def _upsample_bilinear_backward(grad: Tensor, _size: Any, result: Any, *_: Any, **__: Any) -> Steps:
    """Same as for the nearest neighbour."""
    yield
    _upsampled(grad, tuple(result))


def _loss(places: tuple[int, ...], *operands: Any) -> Steps:
    yield
    _copies(*(operands[place] for place in places))


_OF_LOSS = "Copies of input, target and gradient that are not contiguous."
for _op, _places, _what, _source in (
    ("nll_loss_forward", (0, 1), _OF_LOSS, "Loss.cu"),
    ("multi_margin_loss", (0, 1), _OF_LOSS, "MultiMarginLoss.cu"),
    ("multilabel_margin_loss_forward", (0, 1), _OF_LOSS, "MultiLabelMarginCriterion.cu"),
    ("nll_loss_backward", (2, 1, 0), _OF_LOSS, "Loss.cu"),
    ("multi_margin_loss_backward", (2, 1, 0), _OF_LOSS, "MultiMarginLoss.cu"),
    ("multilabel_margin_loss_backward", (1, 2, 4, 0), "As well a copy of the marks.", "MultiLabelMarginCriterion.cu"),
):
    _hidden(_op, what=_what, source=_source)(partial(_loss, _places))


@_hidden("nll_loss2d_forward", source="NLLLoss2d.cu")
def _nll_loss2d(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1, *_: Any) -> Steps:
    """Copies of an input and a target that are not contiguous, where the loss is reduced."""
    yield
    if reduction:
        _copies(x, target)


@_hidden("nll_loss2d_backward", source="NLLLoss2d.cu")
def _nll_loss2d_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1, *_: Any
) -> Steps:
    """A copy of a target that is not contiguous, where the loss was reduced."""
    yield
    if reduction:
        _copies(target)


@_hidden("masked_scatter", "masked_scatter_", source="IndexKernel.cpp, IndexKernel.cu")
def _masked_scatter(x: Tensor, mask: Tensor, values: Tensor) -> Steps:
    """The number of true elements before each position, in int64; copies of mask and values that are not contiguous."""
    yield
    before = scratch(8 * x.numel())
    copies = _copies(mask.expand(x.shape))
    scratch(cub.scan(x.numel(), 8))
    copies += _copies(values)
    del copies, before


def _layout(x: Tensor) -> torch.memory_format:
    """Return the layout that the strides suggest, for a view with gaps as well."""
    with DisableTorchFunction():
        return suggest_memory_format(x)

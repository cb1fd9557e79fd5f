"""Rows of the host's convolutions: copies of oneDNN in layouts of its own, and columns that PyTorch unfolds without it.

aten/src/ATen/native/mkldnn/Conv.cpp: in a contiguous layout oneDNN writes each result into a tensor of its own, which
PyTorch copies into an ordinary one; with channels last only the gradient of the weight, and that twice. These copies
are certain. Which operands oneDNN reorders, and into which blocks of channels, is its choice by processor: the estimate
is what one with AVX-512 was seen to take, without scratchpads.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from memlint.accelerator.device import scratch
from memlint.accelerator.inference import infer
from memlint.accelerator.kernel import kernel_of
from memlint.accelerator.ledger import Entry
from memlint.cuda.hidden.table import Steps, hidden
from memlint.cuda.kernels.composites import suggested_format
from memlint.cuda.kernels.native_convolution import HALF

Tensor = torch.Tensor
CHANNELS = 16
"""Channels that oneDNN keeps together on a processor with AVX-512; fewer elsewhere."""
FEW = 4
"""Most channels of images that are left as they are."""
LARGE_BATCH = 16
"""Images of a batch that oneDNN convolves with kernels of one element, in any number of threads."""
LARGE_KERNEL = 3
"""Largest height and width of kernels with which PyTorch itself convolves a small image."""
SMALL_IMAGE = 20_480
"""Largest number of elements of an only image that PyTorch itself convolves."""


class _Call(NamedTuple):
    """Operands, the result's shape and options of one convolution; sizes are numbers of elements."""

    x: Tensor
    weight: Tensor
    out: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]
    is_transposed: bool
    groups: int

    @property
    def layout(self) -> torch.memory_format:
        """The layout in which it works: `mkldnn_conv_use_channels_last` of ConvUtils.h."""
        plain = torch.contiguous_format
        formats = [suggested_format(each) for each in (self.x, self.weight)]
        return next((each for each in formats if each is not plain), plain)

    @property
    def is_of_onednn(self) -> bool:
        """False if PyTorch itself runs it in one thread: `use_mkldnn` of Convolution.cpp."""
        if self.x.dtype is not torch.float32:
            return self.x.dtype in HALF
        kernel, batch = self.weight.shape[2:], self.x.shape[0]
        is_point = (
            all(step == 1 for step in (*self.stride, *self.dilation))
            and batch < LARGE_BATCH
            and kernel[-1] == kernel[-2 if len(kernel) > 1 else -1] == 1
        )
        is_large = len(kernel) > 1 and min(kernel[-2:]) > LARGE_KERNEL
        elements = math.prod(self.x.shape[:4])
        return not is_point and (self.groups > 1 or is_large or batch > 1 or elements > SMALL_IMAGE)

    @property
    def columns(self) -> int:
        """Columns that PyTorch unfolds without oneDNN: ConvolutionMM2d.cpp and slow_conv3d.cpp have the whole batch's,
        NaiveDilatedConvolution.cpp and NaiveConvolutionTranspose2d.cpp those of one image.
        """  # noqa: D205
        if math.prod(self.weight.shape[2:]) == 1:
            return 0
        images = 1 if self.is_transposed or any(step != 1 for step in self.dilation) else self.x.shape[0]
        sites = self.x.shape if self.is_transposed else self.out
        return images * math.prod(self.weight.shape[1:]) * math.prod(sites[2:])

    @property
    def is_depthwise(self) -> bool:
        """True if each channel has its own kernels."""
        return self.groups > 1 and self.weight.shape[1] == 1

    @property
    def blocked_weight(self) -> int:
        """The weight in blocks of channels of each group."""
        out, inner, *kernel = self.weight.shape
        return self.groups * _up(out // self.groups) * _up(inner) * math.prod(kernel)

    @property
    def ordered_weight(self) -> int:
        """The weight in the order in which it is read; a depthwise one has no blocks then."""
        return self.weight.numel() if self.is_depthwise else self.blocked_weight


def _up(channels: int) -> int:
    return -(-channels // CHANNELS) * CHANNELS


def _blocked(shape: Sequence[int], few: int = 0) -> int:
    """Return the number of elements of images in blocks of channels; those of `few` channels are left as they are."""
    channels = shape[1] if shape[1] <= few else _up(shape[1])
    return math.prod(shape) // max(shape[1], 1) * channels


@hidden("convolution", "_convolution", source="mkldnn/Conv.cpp, ConvolutionMM2d.cpp; measured", devices="host")
def _convolution(x: Tensor, weight: Tensor, *rest: Any) -> Steps:
    """Copies of the operands, and in a contiguous layout the result as oneDNN writes it; or columns."""
    out = infer(kernel_of(torch.ops.aten.convolution.default), (x, weight, *rest[:7]), {}).shape
    call = _Call(x, weight, out, rest[1], rest[3], rest[4], rest[6])
    blocks, result = call.ordered_weight, math.prod(out)
    most = 2 * (_blocked(x.shape) + blocks) + _blocked(out) + call.columns
    if not call.is_of_onednn:
        least = best = call.columns
    elif call.layout is torch.contiguous_format:
        image = _blocked(x.shape) if x.shape[1] > FEW else 0
        least, best = result, max(result, image + blocks + _blocked(out, FEW) - result)
    else:
        least, best = 0, blocks
    entry = _take(x, least, best, most)
    yield
    del entry


@hidden("convolution_backward", source="mkldnn/Conv.cpp, ConvolutionMM2d.cpp; measured", devices="host")
def _convolution_backward(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> Steps:
    """Copies of operands and results, one gradient after the other; or columns."""
    call = _Call(x, weight, grad.shape, rest[1], rest[3], rest[4], rest[6])
    blocks = call.ordered_weight
    most = _blocked(grad.shape) + 2 * _blocked(x.shape) + 2 * call.blocked_weight + call.columns
    if x.dtype in HALF:  # the gradient of the weight is summed in float32, from operands in another layout
        most += 2 * call.blocked_weight + _blocked(x.shape) + _blocked(grad.shape)
    sizes = x.numel(), weight.numel(), grad.shape[1]
    of_x, of_weight, of_bias = (size if wanted else 0 for size, wanted in zip(sizes, rest[7], strict=True))
    if not call.is_of_onednn:
        least = best = call.columns
    elif call.layout is torch.contiguous_format:
        images = _blocked(grad.shape, FEW) + _blocked(x.shape, FEW)
        certain = 2 * of_x, of_x + 2 * (of_weight + of_bias)
        first = images + blocks if of_x else 0
        second = of_x + of_bias + blocks + (0 if call.is_depthwise else images) if of_weight else 0
        results = of_x + of_weight + of_bias
        least, best = max(certain) - results, max(*certain, first, second) - results
    else:
        copy = of_weight if suggested_format(weight.contiguous()) is not call.layout else 0
        least = of_weight + copy + of_bias
        best = max(least, call.blocked_weight + copy + of_bias) if of_weight else blocks
    entry = _take(x, least, best, most)
    yield
    del entry


def _take(x: Tensor, least: int, best: int, most: int) -> Entry:
    """Take memory; numbers are of elements like those of `x`."""
    size = x.element_size()
    return scratch(best * size, (least * size, max(best, most) * size))

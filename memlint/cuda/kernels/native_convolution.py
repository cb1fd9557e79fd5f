"""Convolutions that PyTorch runs without cuDNN, and the columns that it unfolds for them.

`ConvParams::use_cudnn` of aten/src/ATen/native/Convolution.cpp selects them, read in states of torch 2.3, 2.8, 2.10 and
newer; the memory they take is in ConvolutionMM2d.cu, NaiveDilatedConvolution.cu, NaiveConvolutionTranspose2d.cu and
NaiveConvolutionTranspose3d.cu beside it: the columns of one image and one group, and a copy of each group. Layers of
one dimension run as layers of two whose height is 1. Depthwise layers have kernels of their own, without columns.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from memlint.accelerator import state
from memlint.accelerator.device import contiguous, scratch
from memlint.accelerator.ledger import Entry
from memlint.cuda.simulated import simulated
from memlint.cuda.versions import cudnn_text, cudnn_versions, torch_version

Tensor = torch.Tensor
HALF = (torch.float16, torch.bfloat16)
LARGEST = 2**31 - 1
"""Largest number of elements of an image of the input or the output that 32-bit indices can address."""
LARGE_SINCE = 90_300
"""First cuDNN that takes larger ones (pytorch pull request 134890)."""
BROKEN = range(90_800, 91_500)
"""Versions of cuDNN that PyTorch does not use for 3-d convolutions in half precision, in a contiguous layout, whose
kernel is larger than one element (pull requests 163581 and 166480, since torch 2.9)."""
DETERMINISTIC_DILATED = (2, 5), (2, 8)
"""Before the first of these torch versions, PyTorch itself runs deterministic dilated convolutions; from the second on
it does not. The version between them in which that changed is not known."""


class Call(NamedTuple):
    """One convolution as the program calls it; sizes as PyTorch orders them."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    out: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    dtype: torch.dtype
    channels_last: bool
    """True if cuDNN would work in channels_last."""

    @property
    def is_depthwise(self) -> bool:
        """True if each channel has its own kernels, and PyTorch has kernels for that."""
        channels = self.x[1]
        return not self.transposed and self.groups == channels > 1 and self.weight[0] % channels == 0

    @property
    def is_dilated(self) -> bool:
        """True if the kernels are dilated."""
        return any(step != 1 for step in self.dilation)

    @property
    def is_product(self) -> bool:
        """True if the columns are the input itself."""
        return not any(self.padding) and {*self.weight[2:], *self.stride, *self.dilation} == {1}

    @property
    def columns_nbytes(self) -> int:
        """Bytes of the columns of one image and one group."""
        places = math.prod((self.x if self.transposed else self.out)[2:])
        return math.prod(self.weight[1:]) * places * self.dtype.itemsize


class Reason(NamedTuple):
    """Reason why cuDNN is not used: its version, or else a setting or property of the call."""

    is_certain: bool = True
    """True if every cuDNN that the simulated PyTorch may have is left out."""


def why_native(call: Call) -> Reason | None:
    """Return why PyTorch runs a convolution itself, with the assumptions behind that; None if cuDNN runs it."""
    if call.is_depthwise:
        return None
    if not torch.backends.cudnn.enabled or any(p >= s for p, s in zip(call.output_padding, call.stride, strict=False)):
        return Reason()
    if call.dtype is torch.bfloat16 and simulated().device.capability < (8, 0):
        return Reason()
    return _by_version(call) or _deterministic(call)


def _by_version(call: Call) -> Reason | None:
    """Find the reason for which PyTorch leaves out the cuDNN that its wheels have."""
    is_large = any(math.prod(image) > LARGEST for image in (call.x[1:], call.out[1:]))
    is_half_3d = call.dtype in HALF and len(call.weight) == 5 and set(call.weight[2:]) != {1}
    is_broken = is_half_3d and not call.channels_last and torch_version() >= (2, 9)
    is_left_out = [(is_large and v < LARGE_SINCE) or (is_broken and v in BROKEN) for v in cudnn_versions()]
    if not is_left_out[0]:
        return None
    kind, fixed = (
        ("of more than 2**31 - 1 elements an image", "9.3")
        if is_large and cudnn_versions()[0] < LARGE_SINCE
        else ("of three dimensions in half precision", "9.15")
    )
    version = ".".join(map(str, torch_version()))
    state.assume(
        f"torch {version} from PyPI has cuDNN {cudnn_text(cudnn_versions()[0])}, which PyTorch does not use for "
        f"convolutions {kind}: PyTorch itself unfolds the columns of an image; cuDNN {fixed} or newer would be used"
    )
    return Reason(is_certain=all(is_left_out))


def _deterministic(call: Call) -> Reason | None:
    exact, ended = DETERMINISTIC_DILATED
    deterministic = torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled()
    if not (deterministic and call.is_dilated and not call.channels_last and torch_version() < ended):
        return None
    is_certain = torch_version() < exact
    if not is_certain:
        state.assume(
            "deterministic dilated convolutions are assumed to run in PyTorch, which unfolds columns of an image; "
            f"since a torch between {exact[0]}.{exact[1]} and {ended[0]}.{ended[1]} they run in cuDNN"
        )
    return Reason(is_certain)


def forward(call: Call, *, has_bias: bool, is_certain: bool) -> Tensor:
    """Return the result, and allocate what the kernel takes meanwhile; both operands are contiguous."""
    if call.groups == 1:
        return _forward(call, has_bias=has_bias, is_certain=is_certain)
    parts = []
    for group in _groups(call):
        copy = contiguous(group.x, call.dtype) if call.x[0] > 1 else None
        parts.append(_forward(group, has_bias=has_bias, is_certain=is_certain))
        del copy
    return contiguous(call.out, call.dtype)


def _groups(call: Call) -> Iterator[Call]:
    images, read, *size = call.x
    num_outputs = call.out[1] // call.groups
    group = call._replace(
        x=(images, read // call.groups, *size),
        weight=(call.weight[0] // call.groups, *call.weight[1:]),
        out=(images, num_outputs, *call.out[2:]),
        groups=1,
    )
    for _ in range(call.groups):
        yield group


def _forward(call: Call, *, has_bias: bool, is_certain: bool) -> Tensor:
    out = contiguous(call.out, call.dtype)
    has_columns = call.transposed or call.is_dilated or len(call.weight) == 5 or not call.is_product
    columns = _columns(call, is_certain=is_certain) if has_columns else None
    ones = scratch(math.prod(call.out[2:]) * call.dtype.itemsize) if call.transposed and has_bias else None
    simulated().workspaces.product()
    del columns, ones
    return out


def _columns(call: Call, *, is_certain: bool) -> Entry:
    return scratch(call.columns_nbytes, None if is_certain else (0, call.columns_nbytes))


def backward(
    call: Call, grad: Tensor, mask: Sequence[bool], *, is_certain: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the requested gradients of input, weight and bias; input and weight are contiguous."""
    if call.groups == 1:
        copy = None if grad.is_contiguous() else contiguous(grad.shape, grad.dtype)
        gradients = _backward(call, mask, is_certain=is_certain)
        del copy
        return gradients
    parts = []
    for group in _groups(call):
        copies = [
            contiguous(group.out, call.dtype) if call.x[0] > 1 or not grad.is_contiguous() else None,
            contiguous(group.x, call.dtype) if call.x[0] > 1 else None,
        ]
        parts.append(_backward(group, mask, is_certain=is_certain))
        del copies
    shapes = call.x, call.weight, (call.out[1],)
    whole = [contiguous(shape, call.dtype) if wanted else None for shape, wanted in zip(shapes, mask, strict=True)]
    return whole[0], whole[1], whole[2]


def _backward(
    call: Call, mask: Sequence[bool], *, is_certain: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x = contiguous(call.x, call.dtype) if mask[0] else None
    if call.transposed:  # two kernels, each with its own columns
        if mask[0]:
            _product(call, is_certain=is_certain)
        weight, bias = _of_parameters(call, mask)
        if mask[1] or mask[2]:
            _product(call, is_certain=is_certain)
        return x, weight, bias
    if call.is_dilated or len(call.weight) == 5:
        weight, bias = _of_parameters(call, mask)
        columns = _columns(call, is_certain=is_certain) if mask[0] or mask[1] else None
    else:  # the columns, which are made even if they equal the input, are one buffer for both gradients
        columns = _columns(call, is_certain=is_certain) if mask[0] else None
        weight, bias = _of_parameters(call, mask)
        if mask[1] and columns is None:
            columns = _columns(call, is_certain=is_certain)
    simulated().workspaces.product()
    del columns
    return x, weight, bias


def _product(call: Call, *, is_certain: bool) -> None:
    columns = None if call.is_product else _columns(call, is_certain=is_certain)
    simulated().workspaces.product()
    del columns


def _of_parameters(call: Call, mask: Sequence[bool]) -> tuple[Tensor | None, Tensor | None]:
    weight = contiguous(call.weight, call.dtype) if mask[1] else None
    return weight, contiguous((call.out[1],), call.dtype) if mask[2] else None

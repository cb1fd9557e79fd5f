"""A convolution as cuDNN sees it: shapes, strides and layout of its operands."""

import math
from typing import NamedTuple

import torch

from memlint.cuda.kernels.native_convolution import HALF


class Problem(NamedTuple):
    """One convolution: sizes of input, weight and output as PyTorch orders them."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    out: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    dtype: torch.dtype
    channels_last: bool

    @property
    def is_plain_3x3(self) -> bool:
        """True if Winograd's algorithms apply."""
        plain = set(self.stride) == {1} and set(self.dilation) == {1} and self.groups == 1
        return plain and self.weight[2:] == (3, 3)

    @property
    def is_product(self) -> bool:
        """True if it is one matrix product for each image: a 1 x 1 layer with stride 1."""
        return self.is_of_one_element and set(self.stride) == {1} and self.groups == 1 and self.x[2:] == self.out[2:]

    @property
    def is_of_one_element(self) -> bool:
        """True if a kernel is one element of each channel."""
        return set(self.weight[2:]) == {1}

    @property
    def is_depthwise(self) -> bool:
        """True if every channel has kernels of its own."""
        return self.groups == self.x[1] == self.weight[0] > 1

    @property
    def overlaps(self) -> bool:
        """True if kernels read elements that the next ones read as well."""
        return all(size > step for size, step in zip(self.weight[2:], self.stride, strict=True))

    @property
    def is_dense(self) -> bool:
        """True if kernels are larger than one element, and read all channels."""
        return not self.is_of_one_element and self.groups == 1

    def nbytes(self) -> tuple[int, int, int]:
        """Bytes of input, weight and output."""
        return tuple(math.prod(s) * self.dtype.itemsize for s in (self.x, self.weight, self.out))  # type: ignore[return-value]

    def filled_nbytes(self) -> tuple[int, int, int]:
        """Bytes with channels padded as tensor cores read them: to multiples of 8 in half precision, unless grouped.

        cuDNN's Developer Guide, "Tensor Transformations": packed NCHW data is padded as needed.
        """
        if self.dtype not in HALF or self.groups != 1:
            return self.nbytes()
        outputs, inputs = self.weight[:2]
        more_outputs, more_inputs = filled(outputs, 8) / outputs, filled(inputs, 8) / inputs
        x, weight, out = self.nbytes()
        return round(x * more_inputs), round(weight * more_outputs * more_inputs), round(out * more_outputs)


def filled(channels: int, multiple: int) -> int:
    """Return the number of channels with more to fill a multiple."""
    return math.ceil(channels / multiple) * multiple

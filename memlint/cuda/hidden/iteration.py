"""Iteration order of a reduction: the dimensions of `at::TensorIterator`, ordered, merged and split.

Port of the handling of a reduction's operands in aten/src/ATen/TensorIterator.cpp (`reorder_dimensions`,
`coalesce_dimensions`, `with_32bit_indexing`). Checked with torch 2.10 to 2.13.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

INT32_MAX = 2**31 - 1
ALIGNMENT = 64
"""Alignment in bytes: offsets that agree up to it allow the same vectors. Four of the widest elements."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Dimensions of a reduction, fastest first; strides in bytes, one tuple an operand: outputs, then the input.

    A dimension that is reduced has stride 0 in the outputs and stands before those that are not.
    """

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    offset: int
    """Bytes from the start of the input's storage."""

    @property
    def numel(self) -> int:
        """Number of elements of the input."""
        return math.prod(self.shape)

    @property
    def num_reduced(self) -> int:
        """Number of dimensions that are reduced."""
        return sum(stride == 0 for stride in self.strides[0])

    @property
    def num_outputs(self) -> int:
        """Number of elements of each output."""
        return math.prod(n for n, stride in zip(self.shape, self.strides[0], strict=True) if stride)

    @property
    def indexed_by_32_bits(self) -> bool:
        """True if every element and every byte offset has an index that fits a signed 32-bit integer."""
        if self.numel > INT32_MAX:
            return False
        extents = (1 + sum((n - 1) * s for n, s in zip(self.shape, strides, strict=True)) for strides in self.strides)
        return all(extent <= INT32_MAX for extent in extents)

    def parts(self) -> Iterator[Self]:
        """Split the walk into pieces that 32-bit numbers can index, in the order in which kernels are launched on them.

        Equal pieces are yielded once: each reuses the memory that the one before it released, and a tensor of 2**50
        elements has half a million of them.
        """
        return self._unseen_parts(set())

    def _unseen_parts(self, seen: set[tuple[tuple[int, ...], int]]) -> Iterator[Self]:
        alike = self.shape, self.offset % ALIGNMENT
        if alike in seen:
            return
        seen.add(alike)
        if self.indexed_by_32_bits:
            yield self
            return
        dim = self._dimension_to_split()
        first = self.shape[dim] // 2
        yield from self._narrow(dim, 0, first)._unseen_parts(seen)
        yield from self._narrow(dim, first, self.shape[dim] - first)._unseen_parts(seen)

    def _dimension_to_split(self) -> int:
        def extent(dim: int) -> int:
            return max((self.shape[dim] - 1) * strides[dim] for strides in self.strides)

        return max(reversed(range(len(self.shape))), key=extent, default=0)

    def _narrow(self, dim: int, start: int, length: int) -> Self:
        shape = (*self.shape[:dim], length, *self.shape[dim + 1 :])
        return replace(self, shape=shape, offset=self.offset + start * self.strides[-1][dim])


def walk(
    shape: Sequence[int], stride: Sequence[int], reduced: Sequence[int], itemsizes: Sequence[int], offset: int = 0
) -> Walk:
    """Walk over an input of this shape and stride (in elements) when the dimensions `reduced` are reduced.

    `itemsizes` are the bytes of an element of each output and then of the input; outputs are contiguous. `offset` is
    the input's storage offset in elements.
    """
    gone = frozenset(reduced)
    output_strides = _contiguous([1 if d in gone else n for d, n in enumerate(shape)])
    dims = []
    for d, n in enumerate(shape):
        in_outputs = [0 if d in gone and n != 1 else output_strides[d] * size for size in itemsizes[:-1]]
        dims.append((n, (*in_outputs, stride[d] * itemsizes[-1])))
    merged = _merge(_order(dims))
    return Walk(
        tuple(n for n, _ in merged),
        tuple(zip(*(strides for _, strides in merged), strict=True)) or ((),) * len(itemsizes),
        offset * itemsizes[-1],
    )


_Dimension = tuple[int, tuple[int, ...]]


def _order(dims: list[_Dimension]) -> list[_Dimension]:
    """Order dimensions: reduced ones first, then by stride.

    An insertion sort, as the comparison may leave a pair undecided.
    """
    order = dims[::-1]
    for i in range(1, len(order)):
        here = i
        for other in reversed(range(i)):
            comparison = _compare(order[other], order[here])
            if comparison > 0:
                order[other], order[here] = order[here], order[other]
                here = other
            elif comparison < 0:
                break
    return order


def _compare(a: _Dimension, b: _Dimension) -> int:
    """Return a positive number if `b` belongs before `a`, a negative one if after, 0 if no operand decides."""
    last = len(a[1]) - 1
    for operand, (x, y) in enumerate(zip(a[1], b[1], strict=True)):
        if operand < last and (x == 0) != (y == 0):
            return 1 if y == 0 else -1
        if x == 0 or y == 0:
            continue
        if x != y:
            return 1 if x > y else -1
        if a[0] > b[0]:
            return 1
    return 0


def _merge(dims: list[_Dimension]) -> list[_Dimension]:
    """Merge neighbouring dimensions that every operand steps through as one."""
    merged = dims[:1]
    for n, strides in dims[1:]:
        size, before = merged[-1]
        if size == 1 or n == 1 or all(size * s == t for s, t in zip(before, strides, strict=True)):
            merged[-1] = (size * n, strides if size == 1 else before)
        else:
            merged.append((n, strides))
    return merged


def _contiguous(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return strides[::-1]

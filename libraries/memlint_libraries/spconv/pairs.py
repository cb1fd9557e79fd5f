"""Which positions meet in spconv's layers (spconv/pytorch/ops.py; csrc/sparse/convops.py).

An int32 for each position and place of the kernel, masks of 32 places in an int32, and their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from memlint.libraries.library import assume_once, launch, temporary
from memlint_libraries.spconv.tensor import LARGEST, ConvAlgo, SparseConvTensor, library

Tensor = torch.Tensor


@dataclass
class Shape:
    """Kernel, stride, padding and dilation of each dimension."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    output_padding: list[int]

    @property
    def places(self) -> int:
        """The number of places of the kernel."""
        return math.prod(self.kernel)

    def after(self, sizes: Sequence[int], *, transposed: bool) -> list[int]:
        """Sizes of what comes out (ops.py:73)."""
        if transposed:
            parts = zip(sizes, self.stride, self.padding, self.kernel, self.output_padding, strict=True)
            return [(size - 1) * stride - 2 * padding + k + more for size, stride, padding, k, more in parts]
        every = zip(sizes, self.stride, self.padding, self.kernel, self.dilation, strict=True)
        return [(size + 2 * pad - dil * (k - 1) - 1) // stride + 1 for size, stride, pad, k, dil in every]


@dataclass
class Pairs:
    """The rows in and out that meet: tensors of the forward pass, and of backward where these are others."""

    indices: Tensor
    out_indices: Tensor
    sizes: list[int]
    out_sizes: list[int]
    forward: Tensor
    backward: Tensor
    rest: tuple[Tensor, ...]
    """Masks, and their order: `IndiceData` and the graph hold them."""
    is_subm: bool
    algo: ConvAlgo = ConvAlgo.MaskImplicitGemm

    def inverse(self) -> Pairs:
        """The way back."""
        if self.algo is ConvAlgo.Native:
            ends = self.out_indices, self.indices, self.out_sizes, self.sizes
            return Pairs(*ends, self.forward, self.backward, (), False, self.algo)
        return Pairs(
            self.out_indices,
            self.indices,
            self.out_sizes,
            self.sizes,
            self.backward,
            self.forward,
            self.rest,
            False,
            self.algo,
        )


def _hash(number: int, indices: Tensor, *, wide: bool, rate: float = 2.0) -> list[Tensor]:
    """Keys and values of a table (`_HashData`, ops.py:99)."""
    number = int(number * rate)
    if not wide:
        return [indices.new_empty(2, number)]
    return [indices.new_empty(number, dtype=dtype) for dtype in (torch.int64, torch.int32)]


def _sorted(masks: Tensor, order: Tensor) -> None:
    """Thrust merges keys that are tuples or compared by a mask: keys and places once more (all.py:935, :1060)."""
    more = temporary((masks.nbytes + order.nbytes) // len(masks))
    launch((masks,), (order,))
    del more


def met(x: SparseConvTensor, shape: Shape, algo: ConvAlgo, *, subm: bool, transposed: bool, training: bool) -> Pairs:
    """Look it up: `get_indice_pairs_implicit_gemm`, ops.py:329, with a table in place of a sort of what is unique."""
    library.assume()
    if algo is ConvAlgo.Native:
        return _met_natively(x, shape, subm=subm, transposed=transposed)
    indices, number = x.indices, x.indices.shape[0]
    masked = -(-shape.places // 32)
    split = 2 if algo is ConvAlgo.MaskSplitImplicitGemm else 1
    if split > 1 and masked > 1:
        raise AssertionError("Not Implemented")
    wide = math.prod(x.spatial_shape) * x.batch_size >= LARGEST
    if subm:
        pairs = torch.full((1 + training, shape.places, number), -1, dtype=torch.int32, device=indices.device)
        counts = indices.new_zeros(shape.places)
        table = _hash(number, indices, wide=wide)
        mask = indices.new_empty(split, number, masked)
        launch((indices, *table), (pairs, counts, mask))
        order = indices.new_empty(split, number)
        _sorted(mask, order)
        back = pairs[1] if training else pairs.new_empty(0)
        return Pairs(indices, indices, x.spatial_shape, x.spatial_shape, pairs[0], back, (mask, order), True, algo)
    sizes = shape.after(x.spatial_shape, transposed=transposed)
    most = number * (
        shape.places
        if transposed
        else math.prod(-(-k // stride) for k, stride in zip(shape.kernel, shape.stride, strict=True))
    )
    back = torch.full((shape.places, number), -1, dtype=torch.int32, device=indices.device)
    counts = indices.new_zeros(shape.places)
    key = torch.int64 if wide else torch.int32
    unique = indices.new_empty(back.numel() + 1, dtype=key)
    table = _hash(most, indices, wide=wide, rate=1.1)
    copy = indices.new_empty(back.numel() + 1, dtype=key)
    count = indices.new_zeros(1)
    launch((indices,), (*table, back, copy, counts, unique, count))
    found = _number_left(x, sizes)
    out = indices.new_empty(found, indices.shape[1])
    pairs = torch.full((shape.places, found), -1, dtype=torch.int32, device=indices.device)
    mask, back_mask = indices.new_zeros(split, found, masked), indices.new_zeros(split, number, masked)
    launch((indices, unique, copy, *table), (out, pairs, back, mask, back_mask))
    order, back_order = indices.new_empty(split, found), indices.new_empty(split, number)
    for each in ((mask, order), (back_mask, back_order)):
        _sorted(*each)
    rest = mask, order, back_mask, back_order
    return Pairs(indices, out, x.spatial_shape, sizes, pairs, back, rest, False, algo)


def _number_left(x: SparseConvTensor, sizes: list[int]) -> int:
    assume_once("a sparse convolution or pooling with a stride is taken to leave as many positions as it meets")
    return min(x.indices.shape[0], math.prod(sizes) * x.batch_size)


def _met_natively(x: SparseConvTensor, shape: Shape, *, subm: bool, transposed: bool) -> Pairs:
    """Look up the rows in and out at each place, and their number (`get_indice_pairs`, all.py:2020).

    Thrust sorts the unique keys by their digits: it takes a second list of keys, beside which its counts are small.
    """
    indices, number = x.indices, x.indices.shape[0]
    sizes = x.spatial_shape if subm else shape.after(x.spatial_shape, transposed=transposed)
    wide = math.prod(sizes) * x.batch_size >= LARGEST
    pairs = torch.full((2, shape.places, number), -1, dtype=torch.int32, device=indices.device)
    counts = indices.new_zeros(shape.places)
    if subm:
        table = _hash(number, indices, wide=wide)
        launch((indices, *table), (pairs, counts))
        return Pairs(indices, indices, sizes, sizes, pairs, counts, (), True, ConvAlgo.Native)
    key = torch.int64 if wide else torch.int32
    unique = indices.new_empty(pairs.numel() // 2 + 1, dtype=key)
    copy = indices.new_empty(pairs.numel() // 2 + 1, dtype=key)
    launch((indices,), (pairs, counts, unique, copy))
    more = temporary(unique.nbytes)
    launch((unique,), (unique,))
    del more
    found = _number_left(x, sizes)
    out = indices.new_empty(found, indices.shape[1])
    table = _hash(found, indices, wide=wide)
    launch((indices, unique, copy, *table), (out, pairs, counts))
    return Pairs(indices, out, x.spatial_shape, sizes, pairs, counts, (), False, ConvAlgo.Native)

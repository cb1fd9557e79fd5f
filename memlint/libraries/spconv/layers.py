"""spconv's convolutions and pooling, by implicit products.

spconv/pytorch/ops.py, conv.py, pool.py and functional.py; csrc/sparse/convops.py. A convolution looks up
which positions meet: an int32 for each position and place of the kernel, masks of 32 places in an int32, their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.amp import custom_bwd, custom_fwd

from memlint.libraries.library import assume_once, launch, temporary
from memlint.libraries.spconv.tensor import ConvAlgo, SparseConvTensor, library

Tensor = torch.Tensor
_provides = library.provides("spconv.pytorch")
_in_conv = library.provides("spconv.pytorch", "spconv.pytorch.conv")
_in_modules = library.provides("spconv.pytorch", "spconv.pytorch.modules")
_LARGEST = 2**31 - 1
"""Volumes from which keys of positions are int64."""
_ROWS_OF_A_MASK = 32
"""Of the smallest tile of a kernel; which one is taken, times decide."""


# --- which positions meet


@dataclass
class _Shape:
    """Kernel, stride, padding and dilation of each dimension."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    output_padding: list[int]

    @property
    def places(self) -> int:
        """Of the kernel."""
        return math.prod(self.kernel)

    def after(self, sizes: Sequence[int], *, transposed: bool) -> list[int]:
        """Sizes of what comes out (ops.py:73)."""
        if transposed:
            parts = zip(sizes, self.stride, self.padding, self.kernel, self.output_padding, strict=True)
            return [(size - 1) * stride - 2 * padding + k + more for size, stride, padding, k, more in parts]
        every = zip(sizes, self.stride, self.padding, self.kernel, self.dilation, strict=True)
        return [(size + 2 * pad - dil * (k - 1) - 1) // stride + 1 for size, stride, pad, k, dil in every]


@dataclass
class _Pairs:
    """What meets what: tensors of the way forward, and of the way back where it is another one."""

    indices: Tensor
    out_indices: Tensor
    sizes: list[int]
    out_sizes: list[int]
    forward: Tensor
    backward: Tensor
    rest: tuple[Tensor, ...]
    """Masks, and their order: `IndiceData` and the graph hold them."""
    is_subm: bool

    def inverse(self) -> _Pairs:
        """The way back."""
        return _Pairs(
            self.out_indices, self.indices, self.out_sizes, self.sizes, self.backward, self.forward, self.rest, False
        )


def _hash(number: int, indices: Tensor, *, wide: bool, rate: float = 2.0) -> list[Tensor]:
    """Keys and values of a table (`_HashData`, ops.py:99)."""
    number = int(number * rate)
    if not wide:
        return [indices.new_empty(2, number)]
    return [indices.new_empty(number, dtype=dtype) for dtype in (torch.int64, torch.int32)]


def _sorted(masks: Tensor, order: Tensor) -> None:
    """Thrust merges keys that are tuples: keys and places once more (all.py:935)."""
    more = temporary(masks.nbytes + order.nbytes)
    launch((masks,), (order,))
    del more


def _met(x: SparseConvTensor, shape: _Shape, *, subm: bool, transposed: bool, training: bool) -> _Pairs:
    """Look it up: `get_indice_pairs_implicit_gemm`, ops.py:329, with a table in place of a sort of what is unique."""
    library.assume()
    indices, number = x.indices, x.indices.shape[0]
    masked = -(-shape.places // 32)
    wide = math.prod(x.spatial_shape) * x.batch_size >= _LARGEST
    if subm:
        pairs = torch.full((1 + training, shape.places, number), -1, dtype=torch.int32, device=indices.device)
        counts = indices.new_zeros(shape.places)
        table = _hash(number, indices, wide=wide)
        mask = indices.new_empty(1, number, masked)
        launch((indices, *table), (pairs, counts, mask))
        order = indices.new_empty(1, number)
        _sorted(mask, order)
        back = pairs[1] if training else pairs.new_empty(0)
        return _Pairs(indices, indices, x.spatial_shape, x.spatial_shape, pairs[0], back, (mask, order), True)
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
    found = min(number, math.prod(sizes) * x.batch_size)
    assume_once("a sparse convolution or pooling with a stride is taken to leave as many positions as it meets")
    out = indices.new_empty(found, indices.shape[1])
    pairs = torch.full((shape.places, found), -1, dtype=torch.int32, device=indices.device)
    mask, back_mask = indices.new_zeros(1, found, masked), indices.new_zeros(1, number, masked)
    launch((indices, unique, copy, *table), (out, pairs, back, mask, back_mask))
    order, back_order = indices.new_empty(1, found), indices.new_empty(1, number)
    for each in ((mask, order), (back_mask, back_order)):
        _sorted(*each)
    rest = mask, order, back_mask, back_order
    return _Pairs(indices, out, x.spatial_shape, sizes, pairs, back, rest, False)


# --- kernels


class _Product(torch.autograd.Function):
    """Saves features, weights and what meets what; with autocast all is float16 (functional.py:46 and 191)."""

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float16)  # type: ignore[untyped-decorator]
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, pairs: _Pairs, bias: Tensor | None, training: bool
    ) -> Tensor:
        library.assume()
        number = pairs.out_indices.shape[0]
        make = features.new_empty if pairs.is_subm else features.new_zeros
        out = make(number, weight.shape[0])
        shape = 1, -(-number // _ROWS_OF_A_MASK), pairs.rest[0].shape[2]
        masks = features.new_empty(shape, dtype=torch.int32) if training else None
        launch((features, weight, pairs.forward, *pairs.rest, bias), (out, masks))
        ctx.save_for_backward(features, weight, pairs.forward, pairs.backward)
        ctx.kept, ctx.is_subm = (*pairs.rest, masks), pairs.is_subm
        return out

    @staticmethod
    @custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        features, weight, forward, back = ctx.saved_tensors
        grad = grad.contiguous()
        dfeatures = torch.empty_like(features) if ctx.is_subm else torch.zeros_like(features)
        dweight = torch.zeros_like(weight)
        launch((features, weight, grad, forward, back), (dfeatures, dweight))
        return dfeatures, dweight, None, None, None


class _Largest(torch.autograd.Function):
    """Saves both sides, and the way back (functional.py:380)."""

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float16)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, features: Tensor, pairs: _Pairs) -> Tensor:
        out = features.new_empty(pairs.out_indices.shape[0], features.shape[1])
        launch((features, pairs.forward), (out,))
        ctx.save_for_backward(pairs.backward, features, out)
        return out

    @staticmethod
    @custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        back, features, out = ctx.saved_tensors
        made = torch.zeros_like(features)
        launch((grad, back, features, out), (made,))
        return made, None


# --- layers


@_in_modules
class SparseModule(torch.nn.Module):
    """What takes a sparse tensor."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = name


@_in_modules
class SparseSequential(torch.nn.Sequential, SparseModule):
    """One after the other; what is no sparse module takes features alone."""

    def __init__(self, *modules: Any, **named: Any) -> None:
        super().__init__(*modules)
        for name, module in named.items():
            self.add_module(name, module)

    def add(self, module: torch.nn.Module, name: str | None = None) -> None:
        """One more."""
        self.add_module(name or str(len(self)), module)

    def forward(self, x: Any) -> Any:
        """Of a sparse tensor, or of a tensor."""
        for module in self:
            if isinstance(x, SparseConvTensor) and not isinstance(module, (SparseModule, _OfFeatures)):
                x = x.replace_feature(module(x.features))
            else:
                x = module(x)
        return x


class _OfFeatures(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        """Of a sparse tensor's features, or of a tensor."""
        return x.replace_feature(super().forward(x.features)) if isinstance(x, SparseConvTensor) else super().forward(x)


def _of_features(name: str, base: type) -> None:
    _in_modules(type(name, (_OfFeatures, base), {"__module__": "spconv.pytorch.modules"}))


_of_features("SparseBatchNorm", torch.nn.BatchNorm1d)
_of_features("SparseSyncBatchNorm", torch.nn.SyncBatchNorm)
_of_features("SparseReLU", torch.nn.ReLU)
_of_features("SparseIdentity", torch.nn.Identity)


@_provides
class ToDense(SparseModule):
    """A tensor of all positions."""

    def forward(self, x: SparseConvTensor) -> Tensor:
        """Channels come first."""
        return x.dense()


@_provides
class RemoveGrid(SparseModule):
    """Drop the grid."""

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        """Without it."""
        x.grid = None
        return x


def _expanded(ndim: int, value: Any) -> list[int]:
    return [value] * ndim if isinstance(value, int) else [int(each) for each in value]


class _Layer(SparseModule):
    ndim, subm, transposed, inverse = 0, False, False, False

    def __init__(
        self, kernel_size: Any, stride: Any, padding: Any, dilation: Any, output_padding: Any, indice_key: str | None,
        algo: ConvAlgo | None, name: str | None, most: int,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self.kernel_size, self.stride, self.padding, self.dilation, self.output_padding = (
            _expanded(self.ndim, value) for value in (kernel_size, stride, padding, dilation, output_padding)
        )
        self.shape = _Shape(self.kernel_size, self.stride, self.padding, self.dilation, self.output_padding)
        self.indice_key = indice_key
        algo = algo or (ConvAlgo.MaskImplicitGemm if self.shape.places <= most else ConvAlgo.Native)
        if algo is not ConvAlgo.MaskImplicitGemm:
            library.unknown(f"spconv.pytorch.{type(self).__name__}(algo={algo})")()

    def _pairs(self, x: SparseConvTensor) -> tuple[_Pairs, dict[str, Any]]:
        """What meets what, looked up or as a layer of the same key has left it (conv.py:345)."""
        known = x.find_indice_pair(self.indice_key)
        if self.inverse:
            if known is None:
                raise AssertionError(f"no layer has looked up {self.indice_key!r} before")
            return known.inverse(), x.indice_dict
        if known is not None:
            return known, x.indice_dict
        pairs = _met(x, self.shape, subm=self.subm, transposed=self.transposed, training=self.training)
        more = {} if self.indice_key is None else {self.indice_key: pairs}
        return pairs, x.indice_dict | more


class SparseConvolution(_Layer):
    """Weights are [channels out, kernel, channels in] (conv.py:138)."""

    bias: torch.nn.Parameter | None

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any = 3, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, indice_key: str | None = None,
        algo: ConvAlgo | None = None, fp32_accum: Any = None, record_voxel_count: bool = False,
        large_kernel_fast_algo: bool = False, name: str | None = None, output_padding: Any = 0,
    ) -> None:  # fmt: skip
        most = 128 if large_kernel_fast_algo else 32  # places of a kernel (conv.py:111)
        super().__init__(kernel_size, stride, padding, dilation, output_padding, indice_key, algo, name, most)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.weight = torch.nn.Parameter(torch.empty(out_channels, *self.kernel_size, in_channels).uniform_(-1, 1))
        made = torch.nn.Parameter(torch.empty(out_channels).uniform_(-1, 1)) if bias else None
        self.register_parameter("bias", made)

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        """`_conv_forward`, conv.py:151; where one place meets one, a product of PyTorch."""
        if self.shape.places == 1 and (self.subm or math.prod(self.stride) == 1):
            out = torch.mm(x.features, self.weight.view(self.in_channels, self.out_channels))
            if self.bias is not None:
                out += self.bias
            return x.replace_feature(out)
        features = x.features.contiguous()
        pairs, met = self._pairs(x)
        fused = None if self.training else self.bias
        out = _Product.apply(features, self.weight, pairs, fused, self.training)  # type: ignore[no-untyped-call]
        if self.training and self.bias is not None:
            out += self.bias
        return x.replaced(out, pairs.out_indices, pairs.out_sizes, met)


class _Pool(_Layer):
    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, indice_key: str | None = None,
        algo: ConvAlgo | None = None, record_voxel_count: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        strided = kernel_size if stride is None else stride
        super().__init__(kernel_size, strided, padding, dilation, 0, indice_key, algo, name, 128)

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        """The largest of what a place meets (pool.py:99)."""
        pairs, met = self._pairs(x)
        out = _Largest.apply(x.features, pairs)  # type: ignore[no-untyped-call]
        return x.replaced(out, pairs.out_indices, pairs.out_sizes, met)


def _inverse_arguments(self: Any, in_channels: int, out_channels: int, kernel_size: Any, indice_key: str | None = None,
                       bias: bool = True, algo: ConvAlgo | None = None, **options: Any) -> None:  # fmt: skip
    SparseConvolution.__init__(
        self, in_channels, out_channels, kernel_size, bias=bias, indice_key=indice_key, algo=algo, **options
    )


for _ndim in (1, 2, 3, 4):
    for _name, _base, _facts in (
        ("SparseConv", SparseConvolution, {}),
        ("SubMConv", SparseConvolution, {"subm": True}),
        ("SparseConvTranspose", SparseConvolution, {"transposed": True}),
        ("SparseInverseConv", SparseConvolution, {"inverse": True, "__init__": _inverse_arguments}),
        ("SparseMaxPool", _Pool, {}),
    ):
        _in_conv(type(f"{_name}{_ndim}d", (_base,), {"ndim": _ndim, "__module__": "spconv.pytorch", **_facts}))

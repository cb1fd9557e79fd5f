"""spconv's convolutions, by implicit products (spconv/pytorch/conv.py, functional.py and ops.py)."""

import math
from typing import Any

import torch
from torch.amp import custom_bwd, custom_fwd

from memlint.libraries.library import launch
from memlint_libraries.spconv.modules import SparseModule
from memlint_libraries.spconv.pairs import Pairs, Shape, met
from memlint_libraries.spconv.tensor import ConvAlgo, SparseConvTensor, library

Tensor = torch.Tensor
_in_conv = library.provides("spconv.pytorch", "spconv.pytorch.conv")
_ROWS_OF_A_MASK = 32
"""Rows of the kernel's smallest tile; the library chooses the tile by timing."""


# --- kernels


class _Product(torch.autograd.Function):
    """Saves features, weights and what meets what; with autocast all is float16 (functional.py:46 and 191)."""

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float16)  # type: ignore[untyped-decorator]
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, pairs: Pairs, bias: Tensor | None, training: bool
    ) -> Tensor:
        out, masks = _product(features, weight, pairs, bias, features.dtype, training=training)
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


def _product(
    features: Tensor, weight: Tensor, pairs: Pairs, bias: Tensor | None, dtype: torch.dtype, *, training: bool
) -> tuple[Tensor, Tensor | None]:
    """The output, and in training masks of the tiles of each split (ops.py:1450)."""
    library.assume()
    number = pairs.out_indices.shape[0]
    make = features.new_empty if pairs.is_subm else features.new_zeros
    out = make(number, weight.shape[0], dtype=dtype)
    splits, _, masked = pairs.rest[0].shape
    shape = splits, -(-number // _ROWS_OF_A_MASK), masked
    masks = features.new_empty(shape, dtype=torch.int32) if training else None
    launch((features, weight, pairs.forward, *pairs.rest, bias), (out, masks))
    return out, masks


class _NativeProduct(torch.autograd.Function):
    """A product for each place, of rows that it gathers; the middle one is PyTorch's where positions stay.

    It saves pairs, their numbers, features and weights (functional.py:57; convops.py:1504, :1751).
    """

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float16)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, features: Tensor, weight: Tensor, pairs: Pairs, bias: Tensor | None) -> Tensor:
        library.assume()
        ctx.save_for_backward(pairs.forward, pairs.backward, features, weight)
        ctx.is_subm = pairs.is_subm
        if pairs.is_subm:
            out = torch.mm(features, _middle(weight).T)
        else:
            out = features.new_zeros(pairs.out_indices.shape[0], weight.shape[0])
        pairs.backward.cpu()
        launch((features, weight, pairs.forward, bias), (out,))
        return out

    @staticmethod
    @custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        pairs, counts, features, weight = ctx.saved_tensors
        grad = grad.contiguous()
        dweight = torch.zeros_like(weight)
        if ctx.is_subm:
            torch.mm(grad.T, features, out=_middle(dweight))
            dfeatures = torch.mm(grad, _middle(weight))
        else:
            dfeatures = torch.zeros_like(features)
        counts.cpu()
        launch((features, weight, grad, pairs), (dfeatures, dweight))
        return dfeatures, dweight, None, None


def _middle(weight: Tensor) -> Tensor:
    """Return the middle of the kernel: [channels out, channels in]."""
    of_places = weight.view(weight.shape[0], -1, weight.shape[-1])
    return of_places[:, of_places.shape[1] // 2]


# --- layers


def _expanded(ndim: int, value: Any) -> list[int]:
    return [value] * ndim if isinstance(value, int) else [int(each) for each in value]


class Layer(SparseModule):
    """A kernel that goes over positions."""

    ndim, subm, transposed, inverse = 0, False, False, False

    def __init__(
        self, kernel_size: Any, stride: Any, padding: Any, dilation: Any, output_padding: Any, indice_key: str | None,
        algo: ConvAlgo | None, name: str | None, most: int,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self.kernel_size, self.stride, self.padding, self.dilation, self.output_padding = (
            _expanded(self.ndim, value) for value in (kernel_size, stride, padding, dilation, output_padding)
        )
        self.shape = Shape(self.kernel_size, self.stride, self.padding, self.dilation, self.output_padding)
        self.indice_key = indice_key
        self.algo = algo or (ConvAlgo.MaskImplicitGemm if self.shape.places <= most else ConvAlgo.Native)

    def pairs_of(self, x: SparseConvTensor) -> tuple[Pairs, dict[str, Any]]:
        """Return the pairs for `x`, looked up now or left by a layer of the same key (conv.py:345)."""
        known = x.find_indice_pair(self.indice_key)
        if known is not None and known.algo is not self.algo:
            raise AssertionError("you must provide same algo to layers share same indice key.")
        if self.inverse:
            if known is None:
                raise AssertionError(f"no layer has looked up {self.indice_key!r} before")
            return known.inverse(), x.indice_dict
        if known is not None:
            return known, x.indice_dict
        pairs = met(x, self.shape, self.algo, subm=self.subm, transposed=self.transposed, training=self.training)
        more = {} if self.indice_key is None else {self.indice_key: pairs}
        return pairs, x.indice_dict | more


class SparseConvolution(Layer):
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
        pairs, known = self.pairs_of(x)
        fused = None if self.training else self.bias
        if self.algo is ConvAlgo.Native:
            out = _NativeProduct.apply(features, self.weight, pairs, fused)  # type: ignore[no-untyped-call]
        elif self.training:
            out = _Product.apply(features, self.weight, pairs, fused, True)  # type: ignore[no-untyped-call]
        else:  # has no gradient, and autocast does nothing (conv.py:467)
            with torch.no_grad():
                out, _ = _product(features, self.weight, pairs, fused, self.weight.dtype, training=False)
        if self.training and self.bias is not None:
            out += self.bias
        return x.replaced(out, pairs.out_indices, pairs.out_sizes, known)


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
    ):
        _in_conv(type(f"{_name}{_ndim}d", (_base,), {"ndim": _ndim, "__module__": "spconv.pytorch", **_facts}))

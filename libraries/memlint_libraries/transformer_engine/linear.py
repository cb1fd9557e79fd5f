"""Transformer Engine 2.9: products, with a norm or without: pytorch/module/linear.py and layernorm_linear.py."""

from typing import Any

import torch

from memlint_libraries.transformer_engine.layer import Layer
from memlint_libraries.transformer_engine.norms import norm_and_factor, norm_backward
from memlint_libraries.transformer_engine.products import Call, clear, fp8_and_bias, parts_of, swizzled_of
from memlint_libraries.transformer_engine.quantized import Fp8
from memlint_libraries.transformer_engine.recipes import library

Tensor = torch.Tensor
_provides = library.provides("transformer_engine.pytorch")


class _LinearFunction(torch.autograd.Function):
    """Saves the input, or of fp8 its transpose, and the weight as it was multiplied; with a norm, what that saves."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, norm_weight: Tensor | None, _norm_bias: Tensor | None, weight: Tensor,
        bias: Tensor | None, call: Call,
    ) -> Any:  # fmt: skip
        flat = x.reshape(-1, x.shape[-1])
        columns = call.needs_grad and weight.requires_grad
        given_back: Tensor | None = None
        normed: tuple[Any, ...] = ()
        if norm_weight is None:
            factor = call.factor(flat, columns=columns)
        else:
            flat = flat.to(call.dtype)
            factor, given_back, *normed = norm_and_factor(flat, call, columns=columns)  # type: ignore[assignment]
        is_needed = call.needs_grad and (norm_weight is not None or x.requires_grad)
        multiplied = call.weight("weight", weight, columns=is_needed)
        out = call.product(flat.shape[0], weight.shape[0], of=flat, swizzled=swizzled_of(factor, multiplied))
        if isinstance(factor, Fp8) and columns:
            factor.drop_rows()
        if call.needs_grad:
            saved = (None, None) if norm_weight is None else (flat, norm_weight)
            ctx.save_for_backward(weight, *saved, *normed, *parts_of(factor if columns else None, multiplied))
            ctx.call, ctx.has_bias = call, bias is not None
            ctx.swizzled = swizzled_of(factor), swizzled_of(multiplied)
            ctx.num_of_weight = len(parts_of(multiplied))
        out = out.view(*x.shape[:-1], weight.shape[0])
        return out if given_back is None else (out, given_back.view(x.shape))

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_of_norm: Tensor | None = None) -> Any:
        weight, x, norm_weight, *normed = ctx.saved_tensors
        flat = grad.reshape(-1, grad.shape[-1]).contiguous()
        factor, bias = fp8_and_bias(flat, ctx.call, has_bias=ctx.has_bias)
        needs_x, _, _, needs_weight, *_ = ctx.needs_input_grad
        needs_product = needs_x or norm_weight is not None
        of_x, of_weight = (swizzled_of(factor) + swizzled for swizzled in reversed(ctx.swizzled))
        dx = ctx.call.product(flat.shape[0], weight.shape[1], of=flat, swizzled=of_x) if needs_product else None
        dweight = ctx.call.of_weight(weight, of=flat, swizzled=of_weight) if needs_weight else None
        rest: list[Tensor | None] = [None, None]
        if norm_weight is not None:
            if grad_of_norm is not None:
                dx = dx + grad_of_norm.view_as(dx)  # type: ignore[operator, arg-type]
            elif needs_weight:  # layernorm_linear.py:905
                clear(*normed[2 : len(normed) - ctx.num_of_weight])
            dx, *rest = norm_backward(dx, x, norm_weight, ctx.call)  # type: ignore[arg-type]
        del factor
        dx = dx.view(*grad.shape[:-1], dx.shape[1]) if dx is not None and needs_x else None
        return dx, *rest, dweight, bias, None


@_provides
class Linear(Layer):
    """A product."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, params_dtype: torch.dtype | None = None,
        device: Any = "cuda", return_bias: bool = False, fuse_wgrad_accumulation: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, params_dtype, device)
        self.fuse_wgrad_accumulation = fuse_wgrad_accumulation
        self.in_features, self.out_features, self.return_bias = in_features, out_features, return_bias
        self._add("weight", out_features, in_features)
        self._add("bias", out_features, used=bias)
        self._quantize("weight")

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Any:
        """The product of the last dimension, with what `return_bias` and `return_layernorm_output` ask for.

        A bias that is given back is not added.
        """
        bias = None if self.return_bias else self.bias
        norm = getattr(self, "layer_norm_weight", None), getattr(self, "layer_norm_bias", None)
        call = self._call(inp, 1, is_first_microbatch, centered=norm[1] is not None)
        out = _LinearFunction.apply(inp, *norm, self.weight, bias, call)  # type: ignore[no-untyped-call]
        return self._beside(out, self.bias)


@_provides
class LayerNormLinear(Linear):
    """A norm and a product of it."""

    def __init__(
        self, in_features: int, out_features: int, eps: float = 1e-5, bias: bool = True,
        normalization: str = "LayerNorm", params_dtype: torch.dtype | None = None, device: Any = "cuda",
        return_layernorm_output: bool = False, return_layernorm_output_gathered: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, params_dtype, device, **options)
        self.return_layernorm_output = return_layernorm_output
        self._add_norm(in_features, normalization)

"""Transformer Engine 2.9: a norm and two products: pytorch/module/layernorm_mlp.py."""

from typing import Any

import torch

from memlint.libraries.library import temporary
from memlint_libraries.transformer_engine.layer import Layer
from memlint_libraries.transformer_engine.norms import norm_and_factor, norm_backward
from memlint_libraries.transformer_engine.products import (
    ROWS_OF_A_TILE,
    Call,
    clear,
    fp8_and_bias,
    parts_of,
    swizzled_of,
)
from memlint_libraries.transformer_engine.recipes import library

Tensor = torch.Tensor
_provides = library.provides("transformer_engine.pytorch")


class _MLPFunction(torch.autograd.Function):
    """Saves its input and that normed, what is activated and what comes of it, and the weights as multiplied."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, norm_weight: Tensor, _norm_bias: Tensor | None, first: Tensor, first_bias: Tensor | None,
        second: Tensor, second_bias: Tensor | None, call: Call,
    ) -> Any:  # fmt: skip
        flat = x.reshape(-1, x.shape[-1]).to(call.dtype)
        normed, given_back, *of_rows = norm_and_factor(flat, call, columns=call.needs_grad and first.requires_grad)
        named = {"fc1_weight": first, "fc2_weight": second}
        weights = [call.weight(name, weight, columns=call.needs_grad) for name, weight in named.items()]
        hidden = call.product(flat.shape[0], first.shape[0], of=flat, swizzled=swizzled_of(normed, weights[0]))
        if not call.needs_grad and given_back is None:
            clear(normed)  # layernorm_mlp.py:452
        shape = flat.shape[0], second.shape[1]
        if call.recipe is None:
            active: Any = call.made(*shape, of=hidden)
        else:
            active = call.factor(hidden, columns=True, shape=shape)
            full = temporary(shape[0] * shape[1] * hidden.element_size() if call.scales_now else 0)
            del full
        if not call.needs_grad:
            clear(hidden)  # layernorm_mlp.py:497
        out = call.product(flat.shape[0], second.shape[0], of=flat, swizzled=swizzled_of(active, weights[1]))
        if call.needs_grad:
            ctx.save_for_backward(flat, norm_weight, first, second, hidden, *of_rows, *parts_of(*weights),
                                  *parts_of(normed, active))  # fmt: skip
            ctx.call, ctx.num_normed, ctx.num_active = call, len(parts_of(normed)), len(parts_of(active))
            ctx.swizzled = tuple(swizzled_of(each) for each in (normed, weights[0], active, weights[1]))
            ctx.has_first, ctx.has_second = first_bias is not None, second_bias is not None
        out = out.view(x.shape)
        return out if given_back is None else (out, given_back.view(x.shape))

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_of_norm: Tensor | None = None) -> Any:
        call = ctx.call
        needs_first, needs_second = ctx.needs_input_grad[3], ctx.needs_input_grad[5]
        x, norm_weight, first, second, hidden, *rest = ctx.saved_tensors
        active, rest = rest[-ctx.num_active :], rest[: -ctx.num_active]
        normed = rest[-ctx.num_normed :]
        of_normed, of_first, of_active, of_second = ctx.swizzled
        flat = grad.reshape(-1, grad.shape[-1]).contiguous()
        factor, second_bias = fp8_and_bias(flat, call, has_bias=ctx.has_second)
        dactive = call.product(flat.shape[0], second.shape[1], of=flat, swizzled=swizzled_of(factor) + of_second)
        of_product = {"of": flat, "is_shared": False}
        dsecond = None
        if needs_second:
            dsecond = call.of_weight(second, swizzled=swizzled_of(factor) + of_active, **of_product)
        clear(*active)
        if call.recipe is None or call.gated or call.scales_now:
            dhidden: Any = call.made(*hidden.shape, of=dactive)
            dhidden, first_bias = fp8_and_bias(dhidden, call, has_bias=ctx.has_first or call.recipe is not None)
        else:  # the gradient of the activation is made in fp8
            dhidden, first_bias = fp8_and_bias(dactive, call, has_bias=True, rows=ROWS_OF_A_TILE // 2)
        clear(hidden)
        dx = call.product(*x.shape, of=flat, swizzled=swizzled_of(dhidden) + of_first)
        dfirst = None
        if needs_first:
            dfirst = call.of_weight(first, swizzled=swizzled_of(dhidden) + of_normed, **of_product)
            clear(dhidden, *normed)
        if grad_of_norm is not None:
            dx = dx + grad_of_norm.view_as(dx)
        grads = norm_backward(dx, x, norm_weight, call)
        del factor, dactive
        first_bias = first_bias if ctx.has_first else None
        return grads[0].view(grad.shape), *grads[1:], dfirst, first_bias, dsecond, second_bias, None


@_provides
class LayerNormMLP(Layer):
    """A norm, a product, an activation and a product."""

    def __init__(
        self, hidden_size: int, ffn_hidden_size: int, eps: float = 1e-5, bias: bool = True,
        normalization: str = "LayerNorm", activation: str = "gelu", params_dtype: torch.dtype | None = None,
        device: Any = "cuda", return_bias: bool = False, fuse_wgrad_accumulation: bool = False,
        return_layernorm_output: bool = False, return_layernorm_output_gathered: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, params_dtype, device, eps)
        self.activation, self.return_bias = activation, return_bias
        self.fuse_wgrad_accumulation, self.return_layernorm_output = fuse_wgrad_accumulation, return_layernorm_output
        self._add_norm(hidden_size, normalization)
        wide = ffn_hidden_size * (2 if activation.endswith("glu") else 1)
        self._add("fc1_weight", wide, hidden_size)
        self._add("fc1_bias", wide, used=bias)
        self._add("fc2_weight", hidden_size, ffn_hidden_size)
        self._add("fc2_bias", hidden_size, used=bias)
        self._quantize("fc1_weight", "fc2_weight")

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Any:
        """The block, without the residual, with what `return_bias` and `return_layernorm_output` ask for.

        A bias that is given back is not added.
        """
        call = self._call(inp, 2, is_first_microbatch, centered=self.layer_norm_bias is not None,
                          gated=self.activation.endswith("glu"))  # fmt: skip
        weights = (self.layer_norm_weight, self.layer_norm_bias, self.fc1_weight, self.fc1_bias, self.fc2_weight,
                   None if self.return_bias else self.fc2_bias)  # fmt: skip
        out = _MLPFunction.apply(inp, *weights, call)  # type: ignore[no-untyped-call]
        return self._beside(out, self.fc2_bias)

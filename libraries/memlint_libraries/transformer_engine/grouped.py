"""Transformer Engine 2.9: products of several weights, each with its rows: pytorch/module/grouped_linear.py."""

from typing import Any

import torch

from memlint_libraries.transformer_engine.layer import Layer
from memlint_libraries.transformer_engine.products import Call, fp8_and_bias, parts_of, swizzled_of
from memlint_libraries.transformer_engine.quantized import Fp8
from memlint_libraries.transformer_engine.recipes import library

Tensor = torch.Tensor
_STREAMS = 4
"""Each has a workspace of cuBLASLt (common/util/multi_stream.cpp:53, module/base.py:95)."""


class _GroupedFunction(torch.autograd.Function):
    """Saves the rows of each weight, or of fp8 their columns, and the weights as they were multiplied."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, splits: list[int], call: Call, count: int, *tensors: Tensor | None) -> Any:
        weights, biases = tensors[:count], tensors[count:]
        flat = x.reshape(-1, x.shape[-1])
        columns = call.needs_grad and weights[0].requires_grad  # type: ignore[union-attr]
        whole = flat if call.recipe is not None else flat.to(call.dtype)
        rows = [call.factor(each, columns=columns) for each in whole.split(splits)]
        is_needed = call.needs_grad and x.requires_grad
        used = [
            call.weight(f"weight{n}", weight, columns=is_needed)  # type: ignore[arg-type]
            for n, weight in enumerate(weights)
        ]
        height = weights[0].shape[0]  # type: ignore[union-attr]
        out = call.product(sum(splits), height, of=flat, swizzled=swizzled_of(*rows, *used), streams=_STREAMS)
        for each in rows:
            if isinstance(each, Fp8) and columns:
                each.drop_rows()
        if call.needs_grad:
            ctx.save_for_backward(*weights, *parts_of(*(rows if columns else ()), *used))
            ctx.call, ctx.splits, ctx.count, ctx.has_bias = call, splits, count, biases[0] is not None
            ctx.swizzled = swizzled_of(*rows), swizzled_of(*used)
        return out.view(*x.shape[:-1], height)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        call = ctx.call
        weights = ctx.saved_tensors[: ctx.count]
        flat = grad.reshape(-1, grad.shape[-1]).contiguous()
        if call.recipe is None:
            flat = flat.to(call.dtype)
        made = [fp8_and_bias(each, call, has_bias=ctx.has_bias) for each in flat.split(ctx.splits)]
        factors = [factor for factor, _ in made]
        of_rows, of_weights = (swizzled_of(*factors) + more for more in ctx.swizzled)
        needs_x, needs_weights = ctx.needs_input_grad[0], ctx.needs_input_grad[4]
        dx = None
        if needs_x:
            width = weights[0].shape[1]
            dx = call.product(flat.shape[0], width, of=flat, swizzled=of_weights, streams=_STREAMS)
            dx = dx.view(*grad.shape[:-1], width)
        dweights: list[Tensor | None] = [None] * ctx.count
        if needs_weights:
            *others, shape = [weight.shape for weight in weights]  # all of them, then one product of them all
            dweights = [call.made(*each, of=flat) for each in others]
            dweights.append(call.product(*shape, of=flat, swizzled=of_rows, streams=_STREAMS))
        return dx, None, None, None, *dweights, *(bias for _, bias in made)


@library.provides("transformer_engine.pytorch")
class GroupedLinear(Layer):
    """Several weights of one shape."""

    def __init__(
        self, num_gemms: int, in_features: int, out_features: int, bias: bool = True, return_bias: bool = False,
        params_dtype: torch.dtype | None = None, device: Any = "cuda", **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, params_dtype, device)
        self.num_gemms, self.return_bias = num_gemms, return_bias
        for n in range(num_gemms):
            self._add(f"weight{n}", out_features, in_features)
            self._add(f"bias{n}", out_features, used=bias)
        self._quantize(*(f"weight{n}" for n in range(num_gemms)))

    def forward(self, inp: Tensor, m_splits: list[int], is_first_microbatch: bool | None = None) -> Any:
        """The product of the rows of each split with its weight; with `return_bias` the biases beside it."""
        call = self._call(inp, self.num_gemms, is_first_microbatch)
        numbers = range(self.num_gemms)
        weights = [getattr(self, f"weight{n}") for n in numbers]
        biases = [getattr(self, f"bias{n}") for n in numbers]
        added = [None] * self.num_gemms if self.return_bias else biases
        out = _GroupedFunction.apply(inp, m_splits, call, self.num_gemms, *weights, *added)  # type: ignore[no-untyped-call]
        return (out, biases) if self.return_bias else out

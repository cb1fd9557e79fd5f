"""Transformer Engine 2.9: norms: pytorch/module/layernorm.py, rmsnorm.py and csrc/extensions/normalization.cpp."""

from dataclasses import replace
from typing import Any

import torch

from memlint.cuda.simulated import simulated
from memlint.libraries.library import launch, temporary
from memlint_libraries.transformer_engine.layer import Layer
from memlint_libraries.transformer_engine.products import Call
from memlint_libraries.transformer_engine.recipes import DelayedScaling, library

Tensor = torch.Tensor
_provides = library.provides("transformer_engine.pytorch")


def norm_of(x: Tensor, call: Call, *, columns: bool) -> tuple[Any, Tensor | None, Tensor]:
    """The norm, in fp8 where a product takes that, and what backward needs of each row: normalization.cpp:61."""
    mean, spread = (torch.empty(x.shape[0], dtype=torch.float32, device=x.device) for _ in range(2))
    if call.recipe is None:
        out: Any = call.made(*x.shape, of=x)
    else:
        out = call.factor(x, columns=columns)
        full = temporary(0 if isinstance(call.recipe, DelayedScaling) else x.nbytes)
        del full
    launch((x,), (mean, spread))
    return out, mean if call.centered else None, spread


def norm_and_factor(x: Tensor, call: Call, *, columns: bool) -> tuple[Any, Tensor | None, Tensor | None, Tensor]:
    """The norm as a product takes it, that in full where it is given back, and what backward needs of each row."""
    if not call.returns_norm:
        out, mean, spread = norm_of(x, call, columns=columns)
        return out, None, mean, spread
    in_full, mean, spread = norm_of(x, replace(call, recipe=None), columns=False)
    return call.factor(in_full, columns=columns), in_full, mean, spread


def norm_backward(grad: Tensor, x: Tensor, weight: Tensor, call: Call) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients, with float32 sums of those of weights: a row of each block of the kernel.

    How many blocks a multiprocessor has depends on the compiled kernel; one is assumed (ln_bwd_semi_cuda_kernel.cu:15).
    """
    grads = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight) if call.centered else None
    sums = temporary(4 * simulated().device.num_sms * x.shape[1] * (1 + call.centered))
    launch((grad, x, weight), grads)
    del sums
    return grads


class _NormFunction(torch.autograd.Function):
    """Saves its input and a mean and a spread of each row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, _bias: Tensor | None, call: Call) -> Any:
        library.assume()
        flat = x.reshape(-1, x.shape[-1])
        out, mean, spread = norm_of(flat, replace(call, recipe=None), columns=False)
        ctx.save_for_backward(flat, weight, mean, spread)
        ctx.call = call
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, *_ = ctx.saved_tensors
        dx, *rest = norm_backward(grad.reshape(x.shape), x, weight, ctx.call)
        return dx.view(grad.shape), *rest, None


@_provides
class LayerNorm(Layer):
    """Layer norm."""

    centered = True

    def __init__(
        self, normalized_shape: int, eps: float = 1e-5, dtype: torch.dtype | None = None, device: Any = "cuda",
        params_dtype: torch.dtype | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, dtype or params_dtype, device, eps)
        self._add("weight", normalized_shape)
        self._add("bias", normalized_shape, used=self.centered)

    def forward(self, x: Tensor) -> Any:
        """The norm of the last dimension, in the dtype of the weight unless `torch.autocast` says another.

        `op_forward` of ops/basic/rmsnorm.py:159 and layer_norm.py.
        """
        dtype: Any = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else self.weight.dtype
        x = x.contiguous().to(dtype)
        return _NormFunction.apply(x, self.weight, self.bias, self._call(x, centered=self.centered))  # type: ignore[no-untyped-call]


@_provides
class RMSNorm(LayerNorm):
    """The norm without mean and bias."""

    centered = False


NORMS = {"LayerNorm": LayerNorm, "RMSNorm": RMSNorm}
"""The norms by the names that layers have for them."""


class _L2Function(torch.autograd.Function):
    """Saves its input and a float32 number a row; one compiled kernel both ways (jit.py:146, :159)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        library.assume()
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        spread = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
        launch((x,), (out, spread))
        ctx.save_for_backward(x, spread)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        made = torch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
        launch((grad, *ctx.saved_tensors), (made,))
        return made


class L2Normalization(torch.nn.Module):
    """The last dimension made one long: ops/basic/l2normalization.py."""

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Any:
        """The same of every row."""
        return _L2Function.apply(x)  # type: ignore[no-untyped-call]

"""apex 25.09: its Adam in one kernel, and layer norms.

apex/optimizers/fused_adam.py, apex/normalization/fused_layer_norm.py, csrc/layer_norm_cuda.cpp and
csrc/layer_norm_cuda_kernel.cu.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from memlint.libraries.library import Library, contiguous, launch, like, temporary

Tensor = torch.Tensor
library = Library("apex", distribution="apex", version="25.09")
_PARTS = 16
"""Partial sums of each gradient of weights (`part_size`, layer_norm_cuda_kernel.cu)."""


@library.provides("apex.optimizers")
class FusedAdam(torch.optim.Optimizer):
    """Adam with two float32 states of each parameter, and nothing beside them; `capturable` is not known."""

    def __init__(
        self, params: Any, lr: float = 1e-3, bias_correction: bool = True, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, adam_w_mode: bool = True, weight_decay: float = 0.0, amsgrad: bool = False,
        set_grad_none: bool = True, capturable: bool = False, master_weights: bool = False,
    ) -> None:  # fmt: skip
        if amsgrad:
            raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
        if capturable or master_weights:
            library.unknown("apex.optimizers.FusedAdam(capturable=True)")()
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._dummy_overflow_buf = torch.tensor([0], dtype=torch.int, device="cuda")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the states, and update in place."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["exp_avg"] = torch.zeros_like(parameter.data).float()
                    state["exp_avg_sq"] = torch.zeros_like(parameter.data).float()
                operands = parameter, state["exp_avg"], state["exp_avg_sq"]
                launch((*operands, parameter.grad), operands)
        return loss


@library.kernel("forward(Tensor x, int size, Tensor? weight, bool mixed, bool centered) -> (Tensor, Tensor, Tensor)")
def _forward(x: Tensor, size: int, weight: Tensor | None, mixed: bool, centered: bool) -> tuple[Tensor, ...]:
    rows = (x.numel() // size,)
    wide = torch.float32 if x.element_size() < 4 else x.dtype
    out = like(x, weight.dtype if mixed and weight is not None else None)
    return out, contiguous(rows if centered else (0,), wide), contiguous(rows, wide)


@library.kernel(
    "backward(Tensor grad, Tensor x, int size, Tensor? weight, Tensor? bias, Tensor spread)"
    " -> (Tensor, Tensor?, Tensor?)"
)
def _backward(
    grad: Tensor, x: Tensor, size: int, weight: Tensor | None, bias: Tensor | None, spread: Tensor
) -> tuple[Tensor | None, ...]:
    grads = [None if t is None else like(t) for t in (x, weight, bias)]
    partial = [temporary(_PARTS * size * spread.element_size()) for t in (weight, bias) if t is not None]
    del partial
    return tuple(grads)


class _Norm(torch.autograd.Function):
    """Saves its input, or with `memory_efficient` its output, the weights, and a mean and a spread of each row."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, size: int, mixed: bool, centered: bool,
        efficient: bool,
    ) -> Any:  # fmt: skip
        x = x.contiguous()
        out, mean, spread = _forward(x, size, weight, mixed, centered)
        ctx.save_for_backward(out if efficient else x, weight, bias, None if efficient else mean, spread)
        ctx.size = size
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, bias, _mean, spread = ctx.saved_tensors
        grads = _backward(grad.contiguous(), x, ctx.size, weight, bias, spread)
        return *grads, None, None, None, None


class _Module(torch.nn.Module):
    """A norm over the last dimensions."""

    mixed, centered = False, True

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        memory_efficient: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.memory_efficient = shape, eps, memory_efficient
        self.elementwise_affine = elementwise_affine
        has_bias = elementwise_affine and self.centered
        self.weight = torch.nn.Parameter(torch.ones(*shape)) if elementwise_affine else None
        self.bias = torch.nn.Parameter(torch.zeros(*shape)) if has_bias else None

    def forward(self, x: Tensor) -> Any:
        """The norm, in the dtype of the input, or of the weights where dtypes are mixed."""
        kind = math.prod(self.normalized_shape), self.mixed, self.centered, self.memory_efficient
        return _Norm.apply(x, self.weight, self.bias, *kind)  # type: ignore[no-untyped-call]


_modules = library.provides("apex.normalization", "apex.normalization.fused_layer_norm")


@_modules
class FusedLayerNorm(_Module):
    """Layer norm."""


@_modules
class FusedRMSNorm(_Module):
    """The norm without mean and bias."""

    centered = False


@_modules
class MixedFusedLayerNorm(FusedLayerNorm):
    """Layer norm of another dtype than its weights'."""

    mixed = True


@_modules
class MixedFusedRMSNorm(FusedRMSNorm):
    """The same without mean and bias."""

    mixed = True

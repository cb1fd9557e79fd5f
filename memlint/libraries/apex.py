"""apex 25.09: many tensors in one kernel, optimizers that do so, and layer norms.

apex/optimizers/fused_{adam,sgd,adagrad,lamb}.py, apex/normalization/fused_layer_norm.py, csrc/layer_norm_cuda.cpp and
csrc/layer_norm_cuda_kernel.cu.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from memlint.accelerator.device import is_virtual
from memlint.libraries.library import Library, contiguous, launch, like, temporary
from memlint.libraries.many_tensors import CHUNK, MultiTensorApply, in_place, l2norm, norm_of

Tensor = torch.Tensor
library = Library("apex", distribution="apex", version="25.09")
_PARTS = 16
"""Partial sums of each gradient of weights (`part_size`, layer_norm_cuda_kernel.cu)."""

extension = Library("amp_C", distribution="apex", version="25.09")
_optimizers = library.provides("apex.optimizers")


_apply = MultiTensorApply(CHUNK)
library.modules["apex.multi_tensor_apply"] = {"MultiTensorApply": MultiTensorApply, "multi_tensor_applier": _apply}
extension.modules["amp_C"] = {"multi_tensor_l2norm": l2norm(extension)} | {
    f"multi_tensor_{name}": in_place(extension) for name in ("scale", "axpby", "sgd", "adam", "adagrad")
}


# --- optimizers


class _Fused(torch.optim.Optimizer):
    """Updates all parameters in place by one kernel, beside a flag of overflow."""

    def __init__(self, params: Any, **defaults: Any) -> None:
        super().__init__(params, defaults)
        self._dummy_overflow_buf = torch.tensor([0], dtype=torch.int, device="cuda")

    def _states(self, parameter: Tensor) -> dict[str, Tensor]:
        """Make the state of a parameter at its first step."""
        raise NotImplementedError

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
                if not self.state[parameter]:
                    self.state[parameter].update(self._states(parameter.data))
                operands = parameter, *self.state[parameter].values()
                launch((*operands, parameter.grad), operands)
        return loss


@_optimizers
class FusedAdam(_Fused):
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
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _states(self, parameter: Tensor) -> dict[str, Tensor]:
        return {name: torch.zeros_like(parameter).float() for name in ("exp_avg", "exp_avg_sq")}


@_optimizers
class FusedSGD(_Fused):
    """SGD with a momentum of each parameter, whether it is used or not (fused_sgd.py:132)."""

    def __init__(
        self, params: Any, lr: float, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, wd_after_momentum: bool = False, materialize_master_grads: bool = True,
        set_grad_none: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay)
        self.set_grad_none = set_grad_none

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Keep gradients unless it was said that they are not to be kept."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

    def _states(self, parameter: Tensor) -> dict[str, Tensor]:
        return {"momentum_buffer": torch.zeros_like(parameter)}


@_optimizers
class FusedAdagrad(_Fused):
    """Adagrad with a sum of each parameter."""

    def __init__(
        self, params: Any, lr: float = 1e-2, eps: float = 1e-10, weight_decay: float = 0.0, set_grad_none: bool = True,
        adagrad_w_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr=lr, eps=eps, weight_decay=weight_decay)

    def _states(self, parameter: Tensor) -> dict[str, Tensor]:
        return {"sum": torch.zeros_like(parameter)}


@_optimizers
class FusedLAMB(_Fused):
    """LAMB with two states of each parameter, and norms of all gradients and of each parameter and update."""

    def __init__(
        self, params: Any, lr: float = 1e-3, bias_correction: bool = True, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6, weight_decay: float = 0.01, amsgrad: bool = False, adam_w_mode: bool = True,
        grad_averaging: bool = True, set_grad_none: bool = True, max_grad_norm: float = 1.0, use_nvlamb: bool = False,
    ) -> None:  # fmt: skip
        if amsgrad:
            raise RuntimeError("FusedLAMB does not support the AMSGrad variant.")
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _states(self, parameter: Tensor) -> dict[str, Tensor]:
        return {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take the norm of all gradients, update, and take the norms of each parameter and update."""
        loss = super().step(closure)
        parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        of_all, _ = norm_of(extension, [p.grad for p in parameters], per_tensor=False, chunk=CHUNK)
        norms = [norm_of(extension, parameters, per_tensor=True, chunk=CHUNK) for _ in range(2)]
        launch((of_all, *(norm for pair in norms for norm in pair)), parameters)
        return loss


# --- norms


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
        """The norm, in the dtype of the input, or of the weights where dtypes are mixed; on the host PyTorch's own."""
        if not is_virtual(x):
            if self.centered:
                return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
            return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)
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

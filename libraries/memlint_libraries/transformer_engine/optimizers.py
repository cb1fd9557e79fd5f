"""Transformer Engine 2.9: optimizers of one kernel: pytorch/optimizers/fused_adam.py and fused_sgd.py.

The kernels update in place and take nothing; what is beside them is PyTorch's, in their Python.
"""

from collections.abc import Callable
from typing import Any

import torch

from memlint.libraries.library import launch
from memlint.libraries.many_tensors import CHUNK, MultiTensorApply, in_place, l2norm
from memlint_libraries.transformer_engine.quantized import Fp8, Fp8Weight
from memlint_libraries.transformer_engine.recipes import DelayedScaling, library

Tensor = torch.Tensor
_provides = library.provides("transformer_engine.pytorch.optimizers")
_apply = MultiTensorApply(CHUNK)
library.modules["transformer_engine.pytorch.optimizers"] = {
    "MultiTensorApply": MultiTensorApply,
    "multi_tensor_applier": _apply,
    "multi_tensor_l2norm": l2norm(library),
    "multi_tensor_unscale_l2norm": l2norm(library),
} | {
    f"multi_tensor_{name}": in_place(library)
    for name in ("scale", "adam", "adam_fp8", "adam_capturable", "adam_capturable_master", "sgd")
}


class _Fused(torch.optim.Optimizer):
    """Has a flag of overflow; gradients are not kept unless it is said."""

    def __init__(self, params: Any, defaults: dict[str, Any], set_grad_none: bool | None) -> None:
        super().__init__(params, defaults)
        self.set_grad_none = set_grad_none
        self._dummy_overflow_buf = torch.tensor([0], dtype=torch.int, device="cuda")

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Drop gradients, or set them to zero."""
        if self.set_grad_none is not None:
            if set_to_none is not None and set_to_none != self.set_grad_none:
                raise ValueError("zero_grad is called with another set_to_none than the optimizer's set_grad_none")
            set_to_none = self.set_grad_none
        super().zero_grad(set_to_none is None or set_to_none)


_SMALL = torch.float16, torch.bfloat16, torch.uint8


@_provides
class FusedAdam(_Fused):
    """Adam with two states of each parameter, and a third with `master_weights`, in dtypes that are asked for.

    The kernel works on float32: where a state is smaller, a copy of it stands beside it for the whole group
    (fused_adam.py:518), as it does where it is first made (`initialize_state`, fused_adam.py:398).
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, amsgrad: bool = False, *, bias_correction: bool = True, adam_w_mode: bool = True,
        capturable: bool = False, master_weights: bool = False, master_weight_dtype: torch.dtype = torch.float32,
        exp_avg_dtype: torch.dtype = torch.float32, exp_avg_sq_dtype: torch.dtype = torch.float32,
        use_decoupled_grad: bool = False, store_param_remainders: bool = False, set_grad_none: bool | None = None,
    ) -> None:  # fmt: skip
        self._dtypes = {"exp_avg": exp_avg_dtype, "exp_avg_sq": exp_avg_sq_dtype}
        if amsgrad:
            raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
        if master_weights and master_weight_dtype not in {torch.float32, torch.float16}:
            raise RuntimeError("FusedAdam only supports fp32/fp16 master weights.")
        for name, dtype in self._dtypes.items():
            if dtype is not torch.float32 and dtype not in _SMALL:
                raise RuntimeError(f"FusedAdam only supports fp32/fp16/bf16/fp8 {name}.")
        if master_weights:
            self._dtypes["master_param"] = master_weight_dtype
        if capturable and (store_param_remainders or any(each is not torch.float32 for each in self._dtypes.values())):
            raise RuntimeError("Capturable mode only supports fp32 states, and no param remainders.")
        defaults = {
            "lr": torch.tensor(lr, dtype=torch.float32) if capturable else lr, "bias_correction": bias_correction,
            "betas": betas, "eps": eps, "weight_decay": weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults, set_grad_none)
        self.adam_w_mode, self.capturable, self.master_weights = int(adam_w_mode), capturable, master_weights
        if capturable:
            self._step_supports_amp_scaling = True
            for group in self.param_groups:
                group["lr"] = group["lr"].cuda()
        self.use_decoupled_grad = use_decoupled_grad
        self.store_param_remainders = store_param_remainders and master_weights and master_weight_dtype is torch.float32
        self._scales: dict[Tensor, dict[str, Tensor]] = {}

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Drop gradients, or set them to zero; with `use_decoupled_grad` those of that name."""
        if not self.use_decoupled_grad:
            super().zero_grad(set_to_none)
            return
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none is None or set_to_none:
                    parameter.decoupled_grad = None
                else:
                    parameter.decoupled_grad.zero_()

    def _keeps_remainders(self, parameter: Tensor, name: str) -> bool:
        return self.store_param_remainders and name == "master_param" and parameter.dtype is torch.bfloat16

    def get_unscaled_state(self, param: Tensor, state_name: str) -> Tensor:
        """A state in float32: itself, or a copy of it. Where remainders are kept, these."""
        state: Tensor = self.state[param][state_name]
        if isinstance(state, Fp8Weight):
            return state.dequantize()
        if state.dtype is torch.float16:
            return state.float().mul_(self._scales[param][state_name])
        return state if self._keeps_remainders(param, state_name) else state.float()

    def set_scaled_state(self, param: Tensor, state_name: str, unscaled_state: Tensor) -> None:
        """Write a state that is given in float32, in the dtype that it has."""
        if state_name not in self.state[param]:
            self._make(param, state_name)
        if self._dtypes[state_name] is torch.float32:
            self.state[param][state_name].copy_(unscaled_state)
        else:
            self._scale_back(param, state_name, unscaled_state)

    def _scale_back(self, parameter: Tensor, name: str, unscaled: Tensor) -> None:
        """Write a state from its copy in float32: `_apply_scale`, fused_adam.py:251."""
        state = self.state[parameter][name]
        if state.dtype is torch.bfloat16:
            state.copy_(unscaled.bfloat16())
            return
        scale = self._scales[parameter][name]
        least, most = torch.aminmax(unscaled)
        scale.copy_(torch.maximum(-least, most))
        if not isinstance(state, Fp8Weight):
            unscaled.mul_(torch.where(scale > 0, scale.reciprocal(), 0.0))
        state.copy_(unscaled)

    def _make(self, parameter: Tensor, name: str) -> None:
        """Make a state: `_initialize_state`, fused_adam.py:355."""
        dtype = torch.int16 if self._keeps_remainders(parameter, name) else self._dtypes[name]
        state = torch.zeros_like(parameter, dtype=dtype)
        if dtype is torch.uint8:  # its quantizer has a scale and a largest value
            quantizer = torch.ones(1, device=parameter.device), torch.zeros(1, device=parameter.device)
            fp8 = Fp8(state, DelayedScaling(), columns=True)
            state = Fp8Weight(state.float(), fp8, DelayedScaling())
            state.quantizer = quantizer  # type: ignore[attr-defined]
        self.state[parameter][name] = state
        if self._dtypes[name] is not torch.float32:
            self._scales.setdefault(parameter, {})[name] = torch.ones(1, device=parameter.device)

    def _begin(self, parameter: Tensor) -> None:
        """Make its states."""
        for name in self._dtypes:
            self._make(parameter, name)
        if self.master_weights and not self._keeps_remainders(parameter, "master_param"):
            self.set_scaled_state(parameter, "master_param", parameter.clone().detach().float())

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None) -> Any:
        """Make the states, their copies in float32, and update in place."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            copies: list[tuple[Tensor, str, Tensor]] = []
            operands: list[Any] = []
            for parameter in group["params"]:
                if not self.state[parameter]:
                    self._begin(parameter)
                name = "decoupled_grad" if self.use_decoupled_grad else "grad"
                grad = getattr(parameter, name, None)
                if grad is None:
                    continue
                for name, dtype in self._dtypes.items():
                    unscaled = self.get_unscaled_state(parameter, name)
                    operands.append(unscaled)
                    if dtype is not torch.float32:
                        copies.append((parameter, name, unscaled))
                operands += [grad, *(parameter.fp8.parts if isinstance(parameter, Fp8Weight) else (parameter,))]
            library.assume()
            launch(operands, operands)
            for parameter, name, unscaled in copies:
                self._scale_back(parameter, name, unscaled)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """States in float32."""
        saved = super().state_dict()
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, states in saved["state"].items():
            saved["state"][number] = {name: self.get_unscaled_state(parameters[number], name) for name in states}
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take states in float32 over, in the dtypes that they have here."""
        super().load_state_dict(state_dict)
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, states in state_dict["state"].items():
            parameter = parameters[number]
            self.state[parameter] = {}
            for name, value in states.items():
                is_whole = value is not None and not self._keeps_remainders(parameter, name)
                if value is not None:
                    self.set_scaled_state(parameter, name, value.float() if is_whole else value)


@_provides
class FusedSGD(_Fused):
    """SGD with a momentum of each parameter of float16 and float32, whether it is used or not (fused_sgd.py:151).

    Parameters of other dtypes stay as they are, and have none (fused_sgd.py:245).
    """

    def __init__(
        self, params: Any, lr: float, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, *, wd_after_momentum: bool = False, materialize_master_grads: bool = True,
        set_grad_none: bool | None = None,
    ) -> None:  # fmt: skip
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
        }  # fmt: skip
        if nesterov and (momentum <= 0 or dampening):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, defaults, set_grad_none)
        self.wd_after_momentum, self.materialize_master_grads = wd_after_momentum, materialize_master_grads

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the momentum, and update in place."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        library.assume()
        for parameter in (each for group in self.param_groups for each in group["params"]):
            if parameter.grad is None or parameter.dtype not in {torch.float16, torch.float32}:
                continue
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter.data)
            operands = parameter.data, state["momentum_buffer"]
            launch((*operands, parameter.grad), operands)
        return loss

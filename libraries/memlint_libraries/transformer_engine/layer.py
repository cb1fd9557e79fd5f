"""Transformer Engine 2.9: what all layers have: pytorch/module/base.py."""

from typing import Any

import torch

from memlint_libraries.transformer_engine.products import Call
from memlint_libraries.transformer_engine.quantized import Fp8, Fp8Weight
from memlint_libraries.transformer_engine.recipes import DelayedScaling, in_use, library, of_weights

Tensor = torch.Tensor


_HARMLESS = {
    "init_method", "output_layer_init_method", "get_rng_state_tracker", "rng_tracker_name", "name", "seq_length",
    "micro_batch_size", "parallel_mode", "set_parallel_mode", "sequence_parallel", "zero_centered_gamma",
    "layer_number", "softmax_scale", "attention_type",
}  # fmt: skip
"""Options that change no memory on one GPU."""


def _keep_first_values(parameter: Any, on_host: Tensor) -> None:
    """Keep values in full on the host until they are dropped (`_high_precision_init_val`, module/base.py:1277)."""
    values = [on_host]
    parameter.get_high_precision_init_val = lambda: values[0] if values else None
    parameter.clear_high_precision_init_val = values.clear


class Layer(torch.nn.Module):
    """A layer whose weights are made on the GPU, and its state for scales: `DelayedScalingRecipeState`."""

    return_bias = fuse_wgrad_accumulation = return_layernorm_output = False

    def __init__(self, options: dict[str, Any], dtype: torch.dtype | None, device: Any, eps: float = 1e-5) -> None:
        super().__init__()
        for name, value in options.items():
            if name not in _HARMLESS and (value is True or value not in (None, False, 1)):
                self._refuse(f"{name}={value!r}")
        self._made = {"dtype": dtype or torch.get_default_dtype(), "device": device}
        self._recipe_of_weights, self._keeps_first_values = of_weights[-1]
        self.eps = eps
        self._scales: list[Tensor] = []
        self._fp8_workspaces: dict[str, Fp8] = {}

    def _refuse(self, what: str) -> None:
        library.unknown(f"transformer_engine.pytorch.{type(self).__name__}({what})")()

    def reset_parameters(self, **_: Any) -> None:
        """Make what was left on `meta` on the GPU."""
        for name, parameter in list(self.named_parameters(recurse=False)):
            if parameter.is_meta:
                self.register_parameter(name, torch.nn.Parameter(torch.empty_like(parameter, device="cuda")))
                self._quantize(name)

    def _quantize(self, *names: str) -> None:
        """Let weights be in fp8 alone where they were made so: `reset_parameters`, module/base.py:1248."""
        for name in names:
            weight, recipe = getattr(self, name), self._recipe_of_weights
            if recipe is not None and weight.dim() == 2 and not weight.is_meta:
                with torch.no_grad():
                    full = weight.detach()
                on_host = full.cpu() if self._keeps_first_values else None
                fp8 = Fp8(full, recipe, columns=torch.is_grad_enabled(), is_weight=True)
                parameter = torch.nn.Parameter(Fp8Weight(full, fp8, recipe))
                if on_host is not None:
                    _keep_first_values(parameter, on_host)
                self.register_parameter(name, parameter)

    def _add(self, name: str, *shape: int, used: bool = True) -> None:
        value = torch.nn.Parameter(torch.empty(shape, **self._made)) if used else None
        self.register_parameter(name, value)

    def _add_norm(self, size: int, normalization: str) -> None:
        self.normalization = normalization
        self._add("layer_norm_weight", size)
        self._add("layer_norm_bias", size, used=normalization == "LayerNorm")

    def _call(self, x: Tensor, products: int = 0, is_first_microbatch: bool | None = None, **options: Any) -> Call:
        """How it is called; `products`, of which each has scales of three operands forward and two backward.

        With `is_first_microbatch` the layer keeps its weights in fp8.
        """
        recipe = in_use[-1]
        if isinstance(recipe, DelayedScaling) and not self._scales:
            for number in (3 * products, 2 * products):
                self._scales += [
                    torch.ones(number, device=x.device),
                    torch.zeros(recipe.amax_history_len, number, device=x.device),
                ]
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        cache = None if is_first_microbatch is None else self._fp8_workspaces
        return Call(dtype, recipe, torch.is_grad_enabled(), cache=cache, adds=self.fuse_wgrad_accumulation,
                    returns_norm=self.return_layernorm_output, **options)  # fmt: skip

    def _beside(self, out: Any, bias: Any) -> Any:
        """Return the output, with the bias and the norm if they are asked for."""
        first, *norm = out if isinstance(out, tuple) else (out,)
        given = (first, *((bias,) if self.return_bias else ()), *norm)
        return given if len(given) > 1 else first

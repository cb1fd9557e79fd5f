"""The switch of a model that checkpoints its own activations, if it has one that is off."""

import inspect

from torch import nn

_METHODS = {
    "gradient_checkpointing_enable": "supports_gradient_checkpointing",
    "enable_gradient_checkpointing": "_supports_gradient_checkpointing",
    "set_grad_checkpointing": "set_grad_checkpointing",
}
"""Methods of transformers, diffusers and timm, and the attribute by which a model says that it supports what they
switch."""
_NAMES = frozenset(
    f"{use}{what}{done}"
    for use in ("", "use_", "with_", "do_", "enable_")
    for what in ("gradient_", "grad_", "activation_", "")
    for done in ("checkpoint", "checkpoints", "checkpointing")
) | {"with_cp", "use_cp", "checkpoint_activations", "checkpoint_blocks", "recompute_activations"}
"""Names of arguments and attributes that are such switches."""


def switch_of(model: nn.Module) -> str:
    """Return the switch as code, `gradient_checkpointing_enable()` or `use_checkpoint=True`; empty if none is off."""
    for module in model.modules():  # a wrapper has it around the outermost module
        for method, says in _METHODS.items():
            if hasattr(type(module), method) and getattr(module, says, None):
                return f"{method}()"
    for module in model.modules():
        for name, value in vars(module).items():
            if value is False and name in _NAMES:
                return f"{name}=True"
    for module in model.modules():
        for each in inspect.signature(type(module).__init__).parameters.values():
            if each.name in _NAMES and each.default is False:
                return f"{each.name}=True"
    return ""

"""Changes of a model's modules, made after setup."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import checkpoint as checkpointing
from torch.utils.checkpoint import checkpoint

from memlint.whatif.changes import NotApplicableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memlint.whatif.changes import (
        AttentionImplementation,
        ChannelsLast,
        CheckpointInstead,
        CheckpointModules,
        FreezeParameters,
        FrozenBatchNorm,
        InPlaceFlag,
        NoGrad,
    )


def model_of(program: Any) -> nn.Module:
    """The program's model; raises NotApplicableError if it has none."""
    if not isinstance(program.model, nn.Module):
        raise NotApplicableError
    return program.model


def checkpoint_modules(program: Any, change: CheckpointModules) -> None:
    """Each call of these modules becomes a checkpoint."""
    for module in _modules_at(program, change.paths):
        module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)


def checkpoint_instead(program: Any, change: CheckpointInstead) -> None:
    """Checkpoints of other functions only call them, for as long as a step runs."""
    ours = []
    for module in _modules_at(program, change.paths):
        ours.append(module.forward)
        module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
    program.step = functools.partial(_with_no_other_checkpoints, ours, program.step)


def _with_no_other_checkpoints(ours: Sequence[Callable[..., Any]], step: Callable[[], None]) -> None:
    """Run a step while both kinds of checkpoint, reentrant and not, are taken apart inside PyTorch."""
    begin, reentrant = checkpointing._checkpoint_without_reentrant_generator, checkpointing.CheckpointFunction

    def begin_ours(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return begin(function, *args, **kwargs) if function in ours else iter((None,))

    class Plain:
        """Calls what a reentrant checkpoint would call."""

        @staticmethod
        def apply(function: Callable[..., Any], _preserve: bool, *args: Any) -> Any:
            return function(*args)

    checkpointing._checkpoint_without_reentrant_generator = begin_ours  # type: ignore[assignment]
    checkpointing.CheckpointFunction = Plain  # type: ignore[assignment, misc]
    try:
        step()
    finally:
        checkpointing._checkpoint_without_reentrant_generator = begin
        checkpointing.CheckpointFunction = reentrant  # type: ignore[misc]


def no_grad(program: Any, change: NoGrad) -> None:
    """Calls of these modules record nothing for backward."""
    for module in _modules_at(program, change.paths):
        module.forward = torch.no_grad()(module.forward)


def in_place_flag(program: Any, change: InPlaceFlag) -> None:
    """Modules with the attribute get the new value."""
    modules = _modules_at(program, change.paths)
    if not all(isinstance(getattr(module, "inplace", None), bool) for module in modules):
        raise NotApplicableError
    for module in modules:
        module.inplace = change.inplace  # type: ignore[assignment]


def channels_last(program: Any, _change: ChannelsLast) -> None:
    """Weights and images change their strides."""
    model_of(program).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = getattr(program, "inputs", None) or {}
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            inputs[name] = value.to(memory_format=torch.channels_last)


def freeze_parameters(program: Any, change: FreezeParameters) -> None:
    """Parameters stop requiring gradients."""
    parameters = dict(model_of(program).named_parameters())
    for name in change.names:
        if name not in parameters or not parameters[name].is_leaf:
            raise NotApplicableError
        parameters[name].requires_grad_(False)


def frozen_batch_norm(program: Any, change: FrozenBatchNorm) -> None:
    """Modules are replaced; the optimizer keeps parameters that get no gradients any more."""
    model = model_of(program)
    for path, module in zip(change.paths, _modules_at(program, change.paths), strict=True):
        if not isinstance(module, nn.BatchNorm2d) or module.running_var is None or not path:
            raise NotApplicableError
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, _ScaleAndShift(module))


def attention_implementation(program: Any, change: AttentionImplementation) -> None:
    """The libraries' own switches are turned; raises NotApplicableError if none stands the other way."""
    model = model_of(program)
    turned = _turn_transformers(model, change.implementation)
    wanted = change.implementation == "sdpa"
    for module in model.modules():
        if isinstance(getattr(module, "fused_attn", None), bool) and module.fused_attn != wanted:
            module.fused_attn = wanted  # type: ignore[assignment]
            turned = True
    if not turned:
        raise NotApplicableError


def _turn_transformers(model: nn.Module, implementation: str) -> bool:
    turned = False
    for module in model.modules():
        current = getattr(getattr(module, "config", None), "_attn_implementation", None)
        if current in {None, implementation} or not hasattr(module, "set_attn_implementation"):
            continue
        try:
            module.set_attn_implementation(implementation)  # type: ignore[operator]
        except (ValueError, ImportError, AttributeError) as error:
            raise NotApplicableError from error
        # A model that does not support it only warns.
        turned |= module.config._attn_implementation == implementation  # type: ignore[union-attr]
    return turned


class _ScaleAndShift(nn.Module):
    """What a BatchNorm2d that updates nothing computes: `input * scale + shift`, for which backward needs no input."""

    weight: torch.Tensor | None
    bias: torch.Tensor | None
    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        for name in ("weight", "bias", "running_mean", "running_var"):
            value = getattr(norm, name)
            self.register_buffer(name, None if value is None else value.detach())
        self.eps = norm.eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take and give (batch, channels, height, width)."""
        scale = (self.running_var + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        shift = -self.running_mean * scale
        if self.bias is not None:
            shift = shift + self.bias
        return x * scale.view(-1, 1, 1) + shift.view(-1, 1, 1)


def _modules_at(program: Any, paths: Sequence[str]) -> list[nn.Module]:
    modules = dict(model_of(program).named_modules())
    if not modules.keys() >= set(paths):
        raise NotApplicableError
    return [modules[path] for path in paths]

"""Training in another dtype or memory format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from memlint.whatif.change import (
    Change,
    Effect,
    Names,
    NotApplicableError,
    Situation,
    declared,
    model_of,
    roots_of_script,
)

if TYPE_CHECKING:
    from torch import nn

_AMP = {"bfloat16": "bf16-amp", "float16": "fp16-amp"}


@dataclass(frozen=True, slots=True)
class AutocastTraining(Change):
    """Run forward and loss under `torch.autocast`, with a gradient scaler for float16.

    In a hand-written loop only the model is called under autocast, and in a script everything from there to the
    backward; both would need a scaler for float16.
    """

    dtype: Literal["bfloat16", "float16"]
    effect: ClassVar[Effect] = Effect.NUMERICS

    def describe(self, _names: Names) -> str:
        return f"train under autocast in {self.dtype}"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.grows_with_batch:
            yield cls("bfloat16")

    def before_setup(self, program: Any) -> None:
        _set_dtype(program, _AMP[self.dtype])

    def after_setup(self, program: Any) -> None:
        import torch

        roots = roots_of_script(program)
        if not roots and program.own_step is None:
            return
        if self.dtype == "float16":
            raise NotApplicableError
        if roots:
            _AutocastForward().begin_with(roots)
            return
        model = model_of(program)
        model.forward = torch.autocast(program.device, dtype=torch.bfloat16)(model.forward)


@dataclass(frozen=True, slots=True)
class ParameterDtype(Change):
    """Cast the model and its floating-point inputs; gradients and optimizer state follow."""

    dtype: Literal["bfloat16", "float16"]
    effect: ClassVar[Effect] = Effect.DYNAMICS

    def describe(self, _names: Names) -> str:
        return f"keep the parameters in {self.dtype}"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.has_gradients:
            yield cls("bfloat16")

    def before_setup(self, program: Any) -> None:
        _set_dtype(program, self.dtype)

    def after_setup(self, program: Any) -> None:
        import torch

        for root in roots_of_script(program):
            if not any(parameter.dtype is torch.float32 for parameter in root.parameters()):
                raise NotApplicableError
            root.to(getattr(torch, self.dtype))
            root.register_forward_pre_hook(self._cast_inputs, with_kwargs=True)

    def _cast_inputs(self, _module: Any, args: Any, kwargs: Any) -> Any:
        import torch

        from memlint.accelerator.private import tree_map

        def cast(value: Any) -> Any:
            is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
            return value.to(getattr(torch, self.dtype)) if is_float else value

        return tree_map(cast, args), tree_map(cast, kwargs)


@dataclass(frozen=True, slots=True)
class ChannelsLast(Change):
    """Convert the model and its 4-d inputs to `torch.channels_last`."""

    text: ClassVar[str] = "convert model and images to channels_last"
    effect: ClassVar[Effect] = Effect.NUMERICS

    def after_setup(self, program: Any) -> None:
        import torch

        model_of(program).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        inputs = getattr(program, "inputs", None) or {}
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor) and value.dim() == 4:
                inputs[name] = value.to(memory_format=torch.channels_last)


class _AutocastForward:
    """Autocast from each forward of a model to the backward after it."""

    def __init__(self) -> None:
        self._region: Any = None

    def begin_with(self, roots: Sequence[nn.Module]) -> None:
        """Begin autocast at calls of these modules, for the rest of this process."""
        import torch

        for root in roots:
            root.register_forward_pre_hook(self._begin)
        for name in ("backward", "grad"):
            setattr(torch.autograd, name, self._ending(getattr(torch.autograd, name)))

    def _begin(self, *_: Any) -> None:
        import torch

        if self._region is None and torch.is_grad_enabled():
            self._region = torch.autocast("cuda", dtype=torch.bfloat16)
            self._region.__enter__()

    def _ending(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            region, self._region = self._region, None
            if region is not None:
                region.__exit__(None, None, None)
            return function(*args, **kwargs)

        return call


def _set_dtype(program: Any, dtype: Any) -> None:
    """Set another dtype in the Workload of a float32 program."""
    program = declared(program)
    if program.workload.dtype != "float32":
        raise NotApplicableError
    program.workload = replace(program.workload, dtype=dtype)

"""Training in another dtype or memory format."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation, declared, model_of

_AMP = {"bfloat16": "bf16-amp", "float16": "fp16-amp"}


@dataclass(frozen=True, slots=True)
class AutocastTraining(Change):
    """Run forward and loss under `torch.autocast`, with a gradient scaler for float16.

    In a loop of the user's own the model is called under autocast; the loop would need a scaler for float16.
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

        if program.own_step is None:
            return
        if self.dtype == "float16":
            raise NotApplicableError
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


@dataclass(frozen=True, slots=True)
class ChannelsLast(Change):
    """Convert the model and its 4-d inputs to `torch.channels_last`."""

    effect: ClassVar[Effect] = Effect.NUMERICS

    def describe(self, _names: Names) -> str:
        return "convert model and images to channels_last"

    def after_setup(self, program: Any) -> None:
        import torch

        model_of(program).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        inputs = getattr(program, "inputs", None) or {}
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor) and value.dim() == 4:
                inputs[name] = value.to(memory_format=torch.channels_last)


def _set_dtype(program: Any, dtype: Any) -> None:
    """Give the Workload of a float32 program another dtype."""
    program = declared(program)
    if program.workload.dtype != "float32":
        raise NotApplicableError
    program.workload = replace(program.workload, dtype=dtype)

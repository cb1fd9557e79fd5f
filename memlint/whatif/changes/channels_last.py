"""Weights and images in channels_last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from memlint.whatif.change import Change, Effect, Names, model_of


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

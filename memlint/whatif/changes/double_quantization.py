"""Quantized scales of 4-bit weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Self

from memlint.whatif.change import Change, Effect, NotApplicableError, Situation, model_of

_BLOCK = 256
"""Number of scales that share one of their own (`quantize_4bit` of bitsandbytes, functional.py)."""


@dataclass(frozen=True, slots=True)
class DoubleQuantization(Change):
    """Store the scales of bitsandbytes' 4-bit weights in 8 bits instead of 32.

    Not applicable if no weight has 4 bits, or if all scales are quantized already.
    """

    text: ClassVar[str] = "quantize the scales of 4-bit weights too, with bnb_4bit_use_double_quant=True"
    effect: ClassVar[Effect] = Effect.DYNAMICS

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if any("bitsandbytes" in node.op and "4bit" in node.op for node in situation.trace.nodes):
            yield cls()

    def after_setup(self, program: Any) -> None:
        weights: list[Any] = [getattr(module, "weight", None) for module in model_of(program).modules()]
        quantized = [state for weight in weights if (state := getattr(weight, "quant_state", None)) is not None]
        states = [state for state in quantized if not state.nested]
        if not states:
            raise NotApplicableError
        quantize = import_module("bitsandbytes.functional").quantize_blockwise
        for state in states:
            state.offset = state.absmax.mean()
            state.absmax, state.state2 = quantize(state.absmax - state.offset, blocksize=_BLOCK)
            state.nested = True

"""Numbers in 8 bits: the moments of Adam, by an optimizer of an installed package, and the scales of 4-bit weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Self

from memlint.memory.records import Category
from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation, model_of

_PACKAGES = ("bitsandbytes", "torchao")
_NAMES = {"Adam": "Adam8bit", "AdamW": "AdamW8bit"}
_OPTIONS = ("params", "lr", "betas", "eps", "weight_decay")
_BLOCK = 256
"""Number of scales that share one of their own (`quantize_4bit` of bitsandbytes, functional.py)."""


@dataclass(frozen=True, slots=True)
class EightBitOptimizer(Change):
    """Replace PyTorch's Adam by an 8-bit Adam of bitsandbytes, or else of torchao.

    Not applicable if neither is installed.
    """

    effect: ClassVar[Effect] = Effect.DYNAMICS

    def describe(self, _names: Names) -> str:
        return f"take an 8-bit optimizer, such as {_package() or _PACKAGES[0]}.optim.AdamW8bit"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.is_training and Category.OPTIMIZER_STATE in situation.notable and _package():
            yield cls()

    def after_setup(self, program: Any) -> None:
        name, package = _NAMES.get(type(program.optimizer).__name__), _package()
        if name is None or not package or program.optimizer.defaults.get("amsgrad"):
            raise NotApplicableError
        groups = [{key: group[key] for key in _OPTIONS} for group in program.optimizer.param_groups]
        program.optimizer = getattr(import_module(f"{package}.optim"), name)(groups)


def _package() -> str:
    """Return the installed package; empty if there is none."""
    return next((name for name in _PACKAGES if find_spec(name)), "")


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

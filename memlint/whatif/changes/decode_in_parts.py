"""Autoencoders that work on their images one by one, or tile by tile."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from memlint.memory.records import Trace
from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation, model_of

_AUTOENCODER = "Autoencoder"
"""How the names of the classes of diffusers begin that have these switches."""


@dataclass(frozen=True, slots=True)
class DecodeInParts(Change):
    """Call `enable_slicing` or `enable_tiling` of autoencoders of diffusers, and of models with methods of that name.

    Not applicable if none has it, or if it is on in all.
    """

    parts: Literal["slicing", "tiling"]
    effect: ClassVar[Effect] = Effect.NUMERICS

    def describe(self, _names: Names) -> str:
        how = "one image at a time" if self.parts == "slicing" else "in tiles"
        return f"let the autoencoder work {how}, with `enable_{self.parts}()`"

    def effect_in(self, _trace: Trace) -> Effect:
        return Effect.EXACT if self.parts == "slicing" else Effect.NUMERICS

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if not situation.is_training and has_autoencoder(situation.trace):
            yield cls("slicing")
            yield cls("tiling")

    def after_setup(self, program: Any) -> None:
        is_switched = False
        for module in model_of(program).modules():
            enable: Any = getattr(module, f"enable_{self.parts}", None)
            if callable(enable) and getattr(module, f"use_{self.parts}", False) is False:
                enable()
                is_switched = True
        if not is_switched:
            raise NotApplicableError


def has_autoencoder(trace: Trace) -> bool:
    """Return True if a module has the name of an autoencoder of diffusers."""
    return any(kind.startswith(_AUTOENCODER) for _, kind in trace.modules)

"""Switches of the modules of a model: to overwrite inputs, to drop out, to return more, to work in parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from memlint.memory.records import Trace
from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation, model_of, modules_at

_ACTIVATIONS = frozenset({"ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "SiLU", "Mish", "Hardswish"})
_RETURNED = ("output_hidden_states", "output_attentions", "output_scores", "output_logits")
"""Settings of transformers."""
_AUTOENCODER = "Autoencoder"
"""How the names of the classes of diffusers begin that can work in parts."""


@dataclass(frozen=True, slots=True)
class InPlaceFlag(Change):
    """Set `inplace` of the activation modules at these paths."""

    paths: tuple[str, ...]
    inplace: bool
    effect: ClassVar[Effect] = Effect.EXACT

    def describe(self, names: Names) -> str:
        return f"set inplace={self.inplace} in {names.of_modules(self.paths)}"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        activations = tuple(path for path, kind in situation.trace.modules if kind in _ACTIVATIONS)
        if activations and situation.grows_with_batch:
            yield cls(activations, inplace=True)

    def after_setup(self, program: Any) -> None:
        _set(program, self.paths, "inplace", self.inplace)


@dataclass(frozen=True, slots=True)
class WithoutDropout(Change):
    """Let the dropout modules at these paths drop nothing, as with a probability of 0."""

    paths: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.DYNAMICS

    def describe(self, names: Names) -> str:
        return f"set the probability of {names.of_modules(self.paths)} to 0"

    def after_setup(self, program: Any) -> None:
        _set(program, self.paths, "p", 0.0)


@dataclass(frozen=True, slots=True)
class OnlyTheOutput(Change):
    """Switch off the settings of transformers that let a model return what its layers have computed.

    Not applicable if none is on.
    """

    text: ClassVar[str] = f"return the output alone: no {', '.join(f'`{name}`' for name in _RETURNED)}"
    effect: ClassVar[Effect] = Effect.EXACT

    def after_setup(self, program: Any) -> None:
        is_switched = False
        for module in model_of(program).modules():
            for settings in (getattr(module, "config", None), getattr(module, "generation_config", None)):
                for name in _RETURNED:
                    if getattr(settings, name, None) is True:
                        setattr(settings, name, False)
                        is_switched = True
        if not is_switched:
            raise NotApplicableError


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


def _set(program: Any, paths: Sequence[str], name: str, value: float) -> None:
    """Set an attribute of the modules at these paths; each must have one of the value's type."""
    modules = modules_at(program, paths)
    if not all(isinstance(getattr(module, name, None), type(value)) for module in modules):
        raise NotApplicableError
    for module in modules:
        setattr(module, name, value)

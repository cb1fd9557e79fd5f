"""Activations that overwrite their input."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation, modules_at

_ACTIVATIONS = frozenset({"ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "SiLU", "Mish", "Hardswish"})


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
        modules = modules_at(program, self.paths)
        if not all(isinstance(getattr(module, "inplace", None), bool) for module in modules):
            raise NotApplicableError
        for module in modules:
            module.inplace = self.inplace  # type: ignore[assignment]

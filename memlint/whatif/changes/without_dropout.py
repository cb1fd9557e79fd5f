"""Dropout that is disabled."""

from dataclasses import dataclass
from typing import Any, ClassVar

from memlint.whatif.change import Change, Effect, Names, NotApplicableError, modules_at


@dataclass(frozen=True, slots=True)
class WithoutDropout(Change):
    """Let the dropout modules at these paths drop nothing, as with a probability of 0."""

    paths: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.DYNAMICS

    def describe(self, names: Names) -> str:
        return f"set the probability of {names.of_modules(self.paths)} to 0"

    def after_setup(self, program: Any) -> None:
        modules = modules_at(program, self.paths)
        if not all(isinstance(getattr(module, "p", None), float) for module in modules):
            raise NotApplicableError
        for module in modules:
            module.p = 0.0  # type: ignore[assignment]

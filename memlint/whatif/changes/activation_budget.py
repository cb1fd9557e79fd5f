"""The share of activations that compiled code saves for backward."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from memlint.memory.records import Category
from memlint.whatif.change import Change, Effect, Names, Situation, run_within

_TRIED = (0.5, 0.1)
_SETTING = "activation_memory_budget"


@dataclass(frozen=True, slots=True)
class ActivationBudget(Change):
    """Let AOTAutograd save at most this share of the activations of compiled code, and recompute the others.

    The peak may rise: what is recomputed exists beside what it is recomputed from.
    """

    budget: float
    effect: ClassVar[Effect] = Effect.EXACT
    is_made_after_setup: ClassVar[bool] = False  # a script has compiled its code by then

    def describe(self, _names: Names) -> str:
        return f"compile with `{_SETTING} = {self.budget:g}` in the settings of functorch"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.is_training and situation.is_compiled and Category.ACTIVATION in situation.notable:
            yield from map(cls, _TRIED)

    def after_setup(self, program: Any) -> None:
        from memlint.accelerator.private.partitioning import partitioner_settings

        def with_budget() -> AbstractContextManager[object]:
            context: AbstractContextManager[object] = partitioner_settings.patch(**{_SETTING: self.budget})
            return context

        run_within(program, with_budget)

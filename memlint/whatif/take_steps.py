"""More steps in a row than a Trace has."""

from dataclasses import dataclass
from typing import Any, ClassVar

from memlint.whatif.change import Change, Effect, Names

NUM_STEPS = 4


@dataclass(frozen=True, slots=True)
class TakeSteps(Change):
    """Let a script take as many steps before it is ended."""

    num: int
    effect: ClassVar[Effect] = Effect.EXACT

    def describe(self, _names: Names) -> str:
        """As every Change."""
        return f"take {self.num} steps"

    def after_setup(self, program: Any) -> None:
        """Tell the script."""
        program.take_steps(self.num)

"""Autograd disabled throughout."""

from dataclasses import dataclass
from typing import Any, ClassVar

from memlint.whatif.change import Change, Effect, run_within


@dataclass(frozen=True, slots=True)
class WithoutGraph(Change):
    """Run each step, and the rest of a script, under `torch.no_grad`: nothing is saved for a backward.

    A program that runs a backward fails with this Change.
    """

    text: ClassVar[str] = "run under `torch.no_grad()`"
    effect: ClassVar[Effect] = Effect.EXACT

    def after_setup(self, program: Any) -> None:
        import torch

        run_within(program, torch.no_grad)

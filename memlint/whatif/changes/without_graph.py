"""Autograd disabled throughout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from memlint.whatif.change import Change, Effect, Names, run_within


@dataclass(frozen=True, slots=True)
class WithoutGraph(Change):
    """Run each step, and the rest of a script, under `torch.no_grad`: nothing is saved for a backward.

    A program that runs a backward fails with this Change.
    """

    effect: ClassVar[Effect] = Effect.EXACT

    def describe(self, _names: Names) -> str:
        return "run under `torch.no_grad()`"

    def after_setup(self, program: Any) -> None:
        import torch

        run_within(program, torch.no_grad)

"""Parts of a model for which no gradients are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from memlint.whatif.change import Change, Effect, Names, NotApplicableError, model_of, modules_at


@dataclass(frozen=True, slots=True)
class FreezeParameters(Change):
    """Let no gradients be computed for the parameters of these qualified names."""

    names: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.DYNAMICS

    def describe(self, _names: Names) -> str:
        return f"freeze {len(self.names)} parameters"

    def after_setup(self, program: Any) -> None:
        parameters = dict(model_of(program).named_parameters())
        for name in self.names:
            if name not in parameters or not parameters[name].is_leaf:
                raise NotApplicableError
            parameters[name].requires_grad_(False)


@dataclass(frozen=True, slots=True)
class NoGrad(Change):
    """Run the modules at these paths under `torch.no_grad`; the root is the empty path.

    Where nothing is trained through them it is exact, which only the caller can know.
    """

    paths: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.DYNAMICS

    def describe(self, names: Names) -> str:
        return f"run {names.of_modules(self.paths)} under no_grad"

    def after_setup(self, program: Any) -> None:
        import torch

        for module in modules_at(program, self.paths):
            module.forward = torch.no_grad()(module.forward)

"""Parts of a model that are not trained: no gradients for their parameters, or no updates of their statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from memlint.whatif.change import (
    Change,
    Effect,
    Names,
    NotApplicableError,
    Situation,
    model_of,
    modules_at,
    roots_of_script,
    run_within,
)

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, slots=True)
class FreezeParameters(Change):
    """Compute no gradients for the parameters with these qualified names."""

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

    It is exact if nothing is trained through them, which only the caller can know.
    """

    paths: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.DYNAMICS

    def describe(self, names: Names) -> str:
        return f"run {names.of_modules(self.paths)} under no_grad"

    def after_setup(self, program: Any) -> None:
        import torch

        for module in modules_at(program, self.paths):
            module.forward = torch.no_grad()(module.forward)


@dataclass(frozen=True, slots=True)
class FrozenBatchNorm(Change):
    """Replace the BatchNorm2d at these paths by a fixed scale and shift, made of the running statistics.

    The optimizer keeps the parameters, which get no gradients any more.
    """

    paths: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.DYNAMICS

    def describe(self, names: Names) -> str:
        return f"freeze the statistics and weights of {names.of_modules(self.paths)}"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        norms = tuple(path for path, kind in situation.trace.modules if kind == "BatchNorm2d" and path)
        if norms and situation.grows_with_batch:
            yield cls(norms)

    def after_setup(self, program: Any) -> None:
        from torch import nn

        model = model_of(program)
        for path, module in zip(self.paths, modules_at(program, self.paths), strict=True):
            if not isinstance(module, nn.BatchNorm2d) or module.running_var is None or not path:
                raise NotApplicableError
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, _scale_and_shift(module))


def _scale_and_shift(norm: nn.BatchNorm2d) -> nn.Module:
    from torch import nn

    class _ScaleAndShift(nn.Module):
        """A BatchNorm2d without updates: `x * scale + shift`, whose backward needs no `x`."""

        weight: torch.Tensor | None
        bias: torch.Tensor | None
        running_mean: torch.Tensor
        running_var: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            for name in ("weight", "bias", "running_mean", "running_var"):
                value = getattr(norm, name)
                self.register_buffer(name, None if value is None else value.detach())
            self.eps = norm.eps

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Compute (batch, channels, height, width) from the same shape."""
            scale = (self.running_var + self.eps).rsqrt()
            if self.weight is not None:
                scale = scale * self.weight
            shift = -self.running_mean * scale
            if self.bias is not None:
                shift = shift + self.bias
            return x * scale.view(-1, 1, 1) + shift.view(-1, 1, 1)

    return _ScaleAndShift()


@dataclass(frozen=True, slots=True)
class NoGradInEvaluation(Change):
    """Call the models of a script under `torch.no_grad` while they are in evaluation mode."""

    text: ClassVar[str] = "run evaluations under `torch.no_grad()`"
    effect: ClassVar[Effect] = Effect.EXACT

    def after_setup(self, program: Any) -> None:
        roots = roots_of_script(program)
        for root in roots:
            root.forward = partial(_without_grad_in_evaluation, root, root.forward)
        if not roots:
            raise NotApplicableError


def _without_grad_in_evaluation(module: Any, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    import torch

    with torch.set_grad_enabled(torch.is_grad_enabled() and module.training):
        return forward(*args, **kwargs)


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

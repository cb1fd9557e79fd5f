"""Changes of an optimizer: options of its class, its step inside backward, the place where gradients are zeroed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation, model_of

if TYPE_CHECKING:
    import torch

_NEED_ALL_GRADIENTS = frozenset({"clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "unscale_", "GradScaler"})
"""Names in a loop that needs the gradients of all parameters at the same time."""


@dataclass(frozen=True, slots=True)
class OptimizerImplementation(Change):
    """Construct the optimizer with these arguments; None leaves an argument unchanged."""

    foreach: bool | None = None
    fused: bool | None = None
    effect: ClassVar[Effect] = Effect.NUMERICS

    def describe(self, _names: Names) -> str:
        argument = "fused=True" if self.fused else f"foreach={self.foreach}"
        return f"construct the optimizer with {argument}"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.is_training and situation.is_in_optimizer:
            yield cls(foreach=False, fused=True)
            yield cls(foreach=False, fused=False)

    def after_setup(self, program: Any) -> None:
        optimizer = program.optimizer
        arguments = {"foreach": self.foreach, "fused": self.fused}
        arguments = {name: value for name, value in arguments.items() if value is not None}
        if optimizer is None or not all(name in optimizer.defaults for name in arguments):
            raise NotApplicableError
        defaults = {**optimizer.defaults, "foreach": None, "fused": None, **arguments}
        known = {k: v for k, v in defaults.items() if k in optimizer.defaults}
        groups = [{k: v for k, v in group.items() if k not in arguments} for group in optimizer.param_groups]
        program.optimizer = _rebuilt(optimizer, groups, known)


@dataclass(frozen=True, slots=True)
class OptimizerInBackward(Change):
    """Step each parameter and drop its gradient as soon as backward has accumulated it.

    Not applicable if gradients are clipped, scaled or accumulated, which need all of them together.
    """

    text: ClassVar[str] = "step each parameter in backward, with a hook per parameter"
    effect: ClassVar[Effect] = Effect.EXACT

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.has_gradients:
            yield cls()

    def after_setup(self, program: Any) -> None:
        optimizer = program.optimizer
        own_step = getattr(program, "own_step", None)
        if optimizer is None or getattr(program, "scaler", None) is not None:
            raise NotApplicableError
        if getattr(program, "accumulation_steps", 1) > 1 or _NEED_ALL_GRADIENTS.intersection(_names_in(own_step)):
            raise NotApplicableError
        program.optimizer = _PerParameter(optimizer)


@dataclass(frozen=True, slots=True)
class ZeroGradPlacement(Change):
    """Zero the gradients right before the next forward, or right after the optimizer's step.

    The program's own calls of `zero_grad` do nothing.
    """

    before_forward: bool
    set_to_none: bool = True
    """True if gradients are set to None, False if they are filled with zeros."""
    effect: ClassVar[Effect] = Effect.EXACT

    def describe(self, _names: Names) -> str:
        place = "right before the forward" if self.before_forward else "right after the optimizer's step"
        return f"call zero_grad(set_to_none={self.set_to_none}) {place}"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.has_gradients:
            yield cls(before_forward=False)

    def after_setup(self, program: Any) -> None:
        optimizer, model = program.optimizer, model_of(program)
        if optimizer is None:
            raise NotApplicableError
        zero_grad = optimizer.zero_grad
        optimizer.zero_grad = _do_nothing
        model.zero_grad = _do_nothing  # type: ignore[method-assign]
        stepped = []

        def after_step(*_: Any) -> None:
            if self.before_forward:
                stepped.append(True)
            else:
                zero_grad(set_to_none=self.set_to_none)

        def before_forward(*_: Any) -> None:
            if stepped:
                stepped.clear()
                zero_grad(set_to_none=self.set_to_none)

        optimizer.register_step_post_hook(after_step)
        model.register_forward_pre_hook(before_forward)


class _PerParameter:
    """Stand-in for an optimizer whose parameters are stepped one by one in backward."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.param_groups, self.defaults = optimizer.param_groups, optimizer.defaults
        self._parts: list[torch.optim.Optimizer] = []
        self._stepped: set[torch.Tensor] = set()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    part = _rebuilt(optimizer, [{**group, "params": [parameter]}], optimizer.defaults)
                    self._parts.append(part)
                    parameter.register_post_accumulate_grad_hook(self._hook(part))
        optimizer.state.clear()  # some optimizers create their state at once

    @property
    def state(self) -> dict[Any, Any]:
        """State of the optimizers of all parameters."""
        return {parameter: state for part in self._parts for parameter, state in part.state.items()}

    def step(self) -> None:
        """Do nothing: the steps were done in backward."""
        self._stepped.clear()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing: no gradient is left."""

    def _hook(self, part: torch.optim.Optimizer) -> Any:
        def step(parameter: torch.Tensor) -> None:
            if parameter in self._stepped:  # a second backward before the optimizer's step: gradients are accumulated
                raise NotApplicableError
            self._stepped.add(parameter)
            part.step()
            part.zero_grad()

        return step


def _rebuilt(optimizer: Any, groups: Any, defaults: Any) -> Any:
    """Make an optimizer of the same class and options; some classes set `decoupled_weight_decay` themselves."""
    options = {k: v for k, v in defaults.items() if k != "decoupled_weight_decay" or type(optimizer).__name__ == "Adam"}
    try:
        return type(optimizer)(groups, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise NotApplicableError from error


def _do_nothing(*_: Any, **__: Any) -> None:
    """Stand in for a call that is made elsewhere."""


def _names_in(function: Any) -> Iterator[str]:
    """Yield every name in the code of a function, nested functions included."""
    codes: list[CodeType] = [function.__code__] if hasattr(function, "__code__") else []
    for code in codes:
        yield from code.co_names
        codes += [constant for constant in code.co_consts if hasattr(constant, "co_names")]

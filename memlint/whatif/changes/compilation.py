"""`torch.compile` that a program leaves out, that it has, that leaves fewer lines to Python, or saves less."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from memlint.memory.records import Category
from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation, declared, run_within

_BUDGETS = (0.5, 0.1)
_BUDGET = "activation_memory_budget"


@dataclass(frozen=True, slots=True)
class CompileModel(Change):
    """Compile the whole model, as `--compile on` does."""

    text: ClassVar[str] = "compile the model: `model.compile()`"
    effect: ClassVar[Effect] = Effect.NUMERICS
    is_made_after_setup: ClassVar[bool] = False

    def before_setup(self, program: Any) -> None:
        _set(program, "on")


@dataclass(frozen=True, slots=True)
class WithoutCompilation(Change):
    """Run what the program compiles eagerly."""

    text: ClassVar[str] = "leave out `torch.compile`"
    effect: ClassVar[Effect] = Effect.NUMERICS
    is_made_after_setup: ClassVar[bool] = False

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.is_compiled:
            yield cls()

    def before_setup(self, program: Any) -> None:
        _set(program, "off")


@dataclass(frozen=True, slots=True)
class WithoutBreaks(Change):
    """Let TorchDynamo keep in its graph what settings allow: numbers read from tensors, shapes that depend on values,
    and lines that print.
    """  # noqa: D205

    text: ClassVar[str] = (
        "set `capture_scalar_outputs` and `capture_dynamic_output_shape_ops` of `torch._dynamo.config`, and add "
        "`print` to its `reorderable_logging_functions`"
    )
    effect: ClassVar[Effect] = Effect.NUMERICS
    is_made_after_setup: ClassVar[bool] = False

    def after_setup(self, program: Any) -> None:
        def with_settings() -> AbstractContextManager[object]:
            from memlint.accelerator.private.compilation import dynamo_config  # the unchanged program has loaded it

            context: AbstractContextManager[object] = dynamo_config.patch(
                capture_scalar_outputs=True,
                capture_dynamic_output_shape_ops=True,
                reorderable_logging_functions={*dynamo_config.reorderable_logging_functions, print},
            )
            return context

        run_within(program, with_settings)


@dataclass(frozen=True, slots=True)
class ActivationBudget(Change):
    """Let AOTAutograd save at most this share of the activations of compiled code, and recompute the others.

    The peak may rise: what is recomputed exists beside what it is recomputed from.
    """

    budget: float
    effect: ClassVar[Effect] = Effect.EXACT
    is_made_after_setup: ClassVar[bool] = False  # a script has compiled its code by then

    def describe(self, _names: Names) -> str:
        return f"compile with `{_BUDGET} = {self.budget:g}` in the settings of functorch"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.is_training and situation.is_compiled and Category.ACTIVATION in situation.notable:
            yield from map(cls, _BUDGETS)

    def after_setup(self, program: Any) -> None:
        from memlint.accelerator.private.partitioning import partitioner_settings

        def with_budget() -> AbstractContextManager[object]:
            context: AbstractContextManager[object] = partitioner_settings.patch(**{_BUDGET: self.budget})
            return context

        run_within(program, with_budget)


def _set(program: Any, setting: Literal["off", "on"]) -> None:
    workload = declared(program).workload
    from memlint.accelerator import lazy_imports
    from memlint.cuda.simulated import simulated

    is_on = setting == "on"
    if workload.compile == setting or (is_on and lazy_imports.is_left_out()) or workload.mode == "generate":
        raise NotApplicableError
    program.workload = replace(workload, compile=setting)
    simulated().compiles = is_on  # the simulation has begun as the unchanged program asks

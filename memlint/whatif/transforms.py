"""Carries out Changes on a program: the same steps, run on the changed model or optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlint.whatif import of_loss, of_modules, of_training
from memlint.whatif.changes import (
    AccumulationSteps,
    AttentionImplementation,
    AutocastTraining,
    BatchSize,
    Change,
    ChannelsLast,
    CheckpointInstead,
    CheckpointModules,
    ChunkedCrossEntropy,
    FreezeParameters,
    FrozenBatchNorm,
    InPlaceFlag,
    NoGrad,
    NotApplicableError,
    OptimizerImplementation,
    OptimizerInBackward,
    ParameterDtype,
    ZeroGradPlacement,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlint.tracing.recorder import Program

__all__ = ["Changed", "NotApplicableError"]


class Changed:
    """A fresh `program` with Changes made one after the other, to be set up once.

    `setup` raises NotApplicableError where one cannot be made. Some mean nothing only once a step
    runs: then `step` raises it, or what wraps it.
    """

    def __init__(self, program: Program, *changes: Change) -> None:
        self.program = program
        self.changes = changes

    def setup(self) -> None:
        """Set the program up and change it."""
        self._make(_BEFORE_SETUP)
        self.program.setup()
        self._make(_AFTER_SETUP)

    def step(self) -> None:
        """Run one step of the changed program."""
        self.program.step()

    def _make(self, transforms: dict[type, Callable[[Any, Any], None]]) -> None:
        for change in self.changes:
            transform = transforms.get(type(change))
            if transform is not None:
                transform(self.program, change)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)


_BEFORE_SETUP: dict[type, Callable[[Any, Any], None]] = {
    AccumulationSteps: of_training.with_smaller_batch,
    AutocastTraining: of_training.with_autocast,
    BatchSize: of_training.with_batch,
    ParameterDtype: of_training.with_dtype,
}
_AFTER_SETUP: dict[type, Callable[[Any, Any], None]] = {
    AccumulationSteps: of_training.refuse_own_step,
    AttentionImplementation: of_modules.attention_implementation,
    AutocastTraining: of_training.autocast_own_step,
    ChannelsLast: of_modules.channels_last,
    CheckpointInstead: of_modules.checkpoint_instead,
    CheckpointModules: of_modules.checkpoint_modules,
    ChunkedCrossEntropy: of_loss.chunked_cross_entropy,
    FreezeParameters: of_modules.freeze_parameters,
    FrozenBatchNorm: of_modules.frozen_batch_norm,
    InPlaceFlag: of_modules.in_place_flag,
    NoGrad: of_modules.no_grad,
    OptimizerImplementation: of_training.optimizer_implementation,
    OptimizerInBackward: of_training.optimizer_in_backward,
    ZeroGradPlacement: of_training.zero_grad_placement,
}

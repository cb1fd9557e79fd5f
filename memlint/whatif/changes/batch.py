"""Steps with another batch, and the batch split into parts whose gradients are accumulated."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from memlint.memory.records import Trace
from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation, declared


@dataclass(frozen=True, slots=True)
class BatchSize(Change):
    """Take steps with another batch size."""

    batch: int
    effect: ClassVar[Effect] = Effect.DYNAMICS
    sets_batch: ClassVar[bool] = True
    is_made_after_setup: ClassVar[bool] = False
    can_follow_itself: ClassVar[bool] = True

    def describe(self, _names: Names) -> str:
        return f"take batch {self.batch}"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        batch, num_parts = _batch_and_parts(situation)
        if situation.grows_with_batch and batch % 2 == 0 and num_parts == 1:
            yield cls(batch // 2)

    def before_setup(self, program: Any) -> None:
        _set_batch(declared(program), self.batch)


@dataclass(frozen=True, slots=True)
class AccumulationSteps(Change):
    """Split the batch into this many equal parts, whose gradients are added before the optimizer steps.

    Statistics of BatchNorm are then those of a part. Not applicable to a hand-written loop, whose use of the batch is
    not known.
    """

    num_steps: int
    most: ClassVar[int] = 256
    """Largest number of parts: more are not used in practice, and a trace would take minutes."""
    effect: ClassVar[Effect] = Effect.NUMERICS
    sets_batch: ClassVar[bool] = True
    is_made_after_setup: ClassVar[bool] = False
    can_follow_itself: ClassVar[bool] = True

    def describe(self, _names: Names) -> str:
        return f"accumulate the gradients of {self.num_steps} parts of the batch"

    def effect_in(self, trace: Trace) -> Effect:
        return Effect.DYNAMICS if any("BatchNorm" in kind for _, kind in trace.modules) else self.effect

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.is_training and situation.grows_with_batch:
            batch, num_parts = _batch_and_parts(situation)
            more = next((number for number in range(num_parts + 1, batch + 1) if batch % number == 0), None)
            if more is not None:
                yield cls(more)

    def before_setup(self, program: Any) -> None:
        program = declared(program)
        batch = program.workload.batch
        if program.workload.mode != "train" or self.num_steps < 2 or batch % self.num_steps:
            raise NotApplicableError
        _set_batch(program, batch // self.num_steps)
        program.accumulation_steps = self.num_steps

    def after_setup(self, program: Any) -> None:
        if program.own_step is not None:
            raise NotApplicableError


def _batch_and_parts(situation: Situation) -> tuple[int, int]:
    batch, num_parts = situation.workload.batch, 1
    for change in situation.chosen:
        if isinstance(change, BatchSize):
            batch = change.batch
        elif isinstance(change, AccumulationSteps):
            num_parts = change.num_steps
    return batch, num_parts


def _set_batch(program: Any, batch: int) -> None:
    inputs = program.workload.inputs
    if inputs is not None and not any(spec.is_batched for spec in inputs):
        raise NotApplicableError
    program.workload = replace(program.workload, batch=batch)

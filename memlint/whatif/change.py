"""Changes: edits of a program, or of the lifetimes in its Trace, whose effect on memory can be simulated.

Each Change is a frozen dataclass in a file of `memlint.whatif.changes`. It defines the Change's effect on training, how
it is made, its description, and when a plan tries it. Rules name Changes, and rules load without torch: only the
functions that make a Change import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from memlint.base.errors import ProgramError
from memlint.memory.liveness import Origin
from memlint.memory.records import Category, Phase, Trace
from memlint.memory.timeline import Timeline
from memlint.targets.workload import Workload

if TYPE_CHECKING:
    from torch import nn

    from memlint.memory.estimate import Estimate
    from memlint.tracing.recorder import Program as AnyProgram
    from memlint.workloads.construction.program import Program

MIN_SHARE = 0.01
"""Smallest share of the peak that makes a candidate, or a saving worth a step of a plan."""
_BY_BATCH = (Category.INPUT, Category.ACTIVATION, Category.TEMPORARY, Category.WORKSPACE)


class NotApplicableError(ProgramError):
    """The Change does not apply to this program."""


class Effect(StrEnum):
    """Effect of a Change on the numbers that training computes; the weakest first."""

    EXACT = "exact"
    """Every value stays the same."""
    NUMERICS = "numerics"
    """The same formulas, rounded differently: another dtype, kernel or order of sums."""
    DYNAMICS = "dynamics"
    """Training takes another course: another batch, fewer trained parameters, weights of another precision."""

    @property
    def severity(self) -> int:
        """Strength of the effect, from 0."""
        return list(Effect).index(self)


class Change:
    """Base of all Changes. Its methods raise NotApplicableError if it means nothing for the program."""

    __slots__ = ()
    text: ClassVar[str]
    """The Change in the imperative, unless `describe` names parts of the program."""
    effect: ClassVar[Effect]
    sets_batch: ClassVar[bool] = False
    """True if the program gets inputs of another batch."""
    can_follow_itself: ClassVar[bool] = False
    """True if a plan that has the Change tries it again with other arguments."""
    is_edit: ClassVar[bool] = False
    """True if `edit` makes it, without another Trace."""
    is_made_after_setup: ClassVar[bool] = True
    """True if it can be made once the model is built, as in a script that has built it."""

    def describe(self, _names: Names) -> str:
        """Describe the Change in the imperative."""
        return self.text

    def before_setup(self, _program: Any) -> None:
        """Change the Workload of a fresh program."""
        return

    def after_setup(self, _program: Any) -> None:
        """Change the model or the optimizer of a program, or how it takes a step."""
        return

    def edit(self, timeline: Timeline, _trace: Trace) -> Timeline:
        """Change lifetimes instead of the program, exact where no other kernel would run."""
        return timeline

    def effect_in(self, _trace: Trace) -> Effect:
        """Return the effect on training in the model of this Trace."""
        return self.effect

    @classmethod
    def candidates(cls, _situation: Situation) -> Iterable[Self]:
        """Return Changes of this kind that could lower the peak; each costs a trace, so hopeless ones are left out."""
        return ()

    def snippet(self, _names: Names) -> list[str]:
        """Return lines of Python that make the Change on a `model`, if `describe` is not enough."""
        return []

    def cheaper(self, _estimate: Estimate, _trace: Callable[[], Trace]) -> Sequence[Change]:
        """Return Changes that save less and recompute less, the least first.

        Estimate and Trace are without the Change.
        """
        return ()

    def joined(self, _chosen: Iterable[Change]) -> Self:
        """Return the Change that replaces the one of this kind among `chosen` and adds this one."""
        return self


@dataclass(frozen=True)
class Situation:
    """A program with some Changes made, and the peak to lower."""

    workload: Workload
    """Workload of the unchanged program."""
    trace: Trace
    estimate: Estimate
    chosen: tuple[Change, ...]

    @property
    def is_training(self) -> bool:
        """True if there is a backward."""
        return self.workload.mode == "train"

    @property
    def is_in_optimizer(self) -> bool:
        """True if the peak is in the optimizer's step."""
        return self.estimate.phase is Phase.OPTIMIZER

    @cached_property
    def is_compiled(self) -> bool:
        """True if compiled code runs in it."""
        return any(node.op.startswith("inductor.") for node in self.trace.nodes)

    @cached_property
    def notable(self) -> frozenset[Category]:
        """Categories that take a notable share of the peak."""
        least = MIN_SHARE * self.estimate.requested.estimate
        return frozenset(category for category, nbytes in self.estimate.categories.items() if nbytes >= least)

    @property
    def has_gradients(self) -> bool:
        """True if gradients are a notable part of the peak of training."""
        return self.is_training and Category.GRADIENT in self.notable

    @property
    def grows_with_batch(self) -> bool:
        """True if memory that grows with the batch is a notable part of a peak outside the optimizer's step."""
        return not self.is_in_optimizer and not self.notable.isdisjoint(_BY_BATCH)

    def runs(self, op: str) -> bool:
        """Return True if the forward has a kernel whose name begins with `aten.` and `op`."""
        return any(node.op.startswith(f"aten.{op}") and node.phase is Phase.FORWARD for node in self.trace.nodes)


class Names(NamedTuple):
    """Names of the parts of a program."""

    modules: Sequence[tuple[str, str]]
    """Modules as in `Trace`."""
    variables: Mapping[Origin, str]
    """Variables that hold the Buffers of an origin."""

    def of_modules(self, paths: Sequence[str]) -> str:
        """Name modules: number, class, the first and the last."""
        kind = dict(self.modules).get(paths[0], "")
        if len(paths) == 1:
            return f"`{paths[0]}` ({kind})"
        every = "every second one, " if _is_every_second(paths) else ""
        return f"{len(paths)} `{kind}` modules, {every}`{paths[0]}` to `{paths[-1]}`"

    def of_buffer(self, origin: Origin) -> str:
        """Name the Buffers of an origin: variable, dtype, shape and line."""
        _, frame, _, shape, dtype, _ = origin
        made = f" made at {Path(frame.path).name}:{frame.line}" if frame else ""
        variable = f"`{self.variables[origin]}`, the " if origin in self.variables else "the "
        return f"{variable}{dtype} {list(shape)}{made}"


class ChangedProgram:
    """A fresh `program` with Changes made one after the other, to be set up once.

    `setup` raises NotApplicableError if a Change cannot be made. Some turn out to be inapplicable only when a step
    runs: then `step`, or a wrapper around it, raises.
    """

    def __init__(self, program: AnyProgram, *changes: Change) -> None:
        self.program = program
        self.changes = changes

    def setup(self) -> None:
        """Set the program up and change it."""
        for change in self.changes:
            change.before_setup(self.program)
        self.program.setup()
        for change in self.changes:
            change.after_setup(self.program)

    def step(self) -> None:
        """Run one step of the changed program."""
        self.program.step()

    def as_rank(self, number: int) -> ChangedProgram:
        """Return the same program as another rank."""
        return ChangedProgram(self.program.as_rank(number), *self.changes)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)


def model_of(program: Any) -> nn.Module:
    """Return the program's model; raises NotApplicableError if it has none."""
    from torch import nn

    if not isinstance(program.model, nn.Module):
        raise NotApplicableError
    return program.model


def roots_of_script(program: Any) -> Sequence[nn.Module]:
    """Return the modules that a script calls itself; empty if the program is no script."""
    return getattr(program, "roots", ())


def run_within(program: Any, manager: Callable[[], AbstractContextManager[object]]) -> None:
    """Run each step of a program in such a context, and all the rest of a script."""
    if hasattr(program, "rest"):
        program.rest.enter_context(manager())
        return
    step = program.step

    def step_within() -> None:
        with manager():
            step()

    program.step = step_within


def modules_at(program: Any, paths: Sequence[str]) -> list[nn.Module]:
    """Return the modules of the program's model at `paths`; raises NotApplicableError if one is missing."""
    modules = dict(model_of(program).named_modules())
    if not modules.keys() >= set(paths):
        raise NotApplicableError
    return [modules[path] for path in paths]


def declared(program: Any) -> Program:
    """Return the program as one built from a Workload; raises NotApplicableError if it is not."""
    from memlint.workloads.construction.program import Program

    if not isinstance(program, Program):
        raise NotApplicableError
    return program


def _is_every_second(paths: Sequence[str]) -> bool:
    """Return True if the paths are those of layers 0, 2, 4 and so on of one list."""
    numbers = [int(number) if number.isdigit() else -1 for number in (path.rpartition(".")[2] for path in paths)]
    return len({path.rpartition(".")[0] for path in paths}) == 1 and all(
        later - number == 2 for number, later in pairwise(numbers)
    )

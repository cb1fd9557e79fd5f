"""What a Change is: an edit of a program, or of the lifetimes in its Trace, whose effect on memory can be simulated.

Each Change is a frozen dataclass in a file of `memlint.whatif.changes`. It says what the Change does to training, how
it is made, how people would say it, and when a plan tries it. Rules name Changes, and rules load without torch: only
the functions that make a Change import it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
"""Of the peak: less is no candidate, and no saving worth a step of a plan."""
_BY_BATCH = (Category.INPUT, Category.ACTIVATION, Category.TEMPORARY, Category.WORKSPACE)


class NotApplicableError(ProgramError):
    """The Change means nothing for this program."""


class Effect(StrEnum):
    """What a Change does to the numbers that training computes; the weakest first."""

    EXACT = "exact"
    """Every value stays what it was."""
    NUMERICS = "numerics"
    """The same formulas, rounded otherwise: another dtype, kernel or order of sums."""
    DYNAMICS = "dynamics"
    """Training takes another way: another batch, fewer trained parameters, weights of another precision."""

    @property
    def severity(self) -> int:
        """How much it does, from 0."""
        return list(Effect).index(self)


class Change(ABC):
    """Base of all Changes. What makes one raises NotApplicableError where it means nothing for the program."""

    __slots__ = ()
    effect: ClassVar[Effect]
    sets_batch: ClassVar[bool] = False
    """Whether the program gets inputs of another batch."""
    can_follow_itself: ClassVar[bool] = False
    """Whether a plan that has the Change tries it again with other arguments."""
    is_edit: ClassVar[bool] = False
    """Whether `edit` makes it, without another Trace."""
    is_made_after_setup: ClassVar[bool] = True
    """Whether it can be made once the model is built, as in a script that has built it."""

    @abstractmethod
    def describe(self, names: Names) -> str:
        """What to do, in the imperative."""

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
        """What it does to training in the model of this Trace."""
        return self.effect

    @classmethod
    def candidates(cls, _situation: Situation) -> Iterable[Self]:
        """Changes of this kind that could lower the peak; each costs a trace, so what cannot lower it is left out."""
        return ()

    def snippet(self, _names: Names) -> list[str]:
        """Lines of Python that make the Change on a `model`, where `describe` does not say it all."""
        return []

    def cheaper(self, _estimate: Estimate, _trace: Callable[[], Trace]) -> Sequence[Change]:
        """Changes that save less and compute less again, the least first; Estimate and Trace are without the Change."""
        return ()

    def joined(self, _chosen: Iterable[Change]) -> Self:
        """What takes the place of the Change of this kind among `chosen`, and adds this one."""
        return self


@dataclass(frozen=True)
class Situation:
    """A program in which some Changes are made, and the peak to lower."""

    workload: Workload
    """Of the unchanged program."""
    trace: Trace
    estimate: Estimate
    chosen: tuple[Change, ...]

    @property
    def is_training(self) -> bool:
        """Whether there is a backward."""
        return self.workload.mode == "train"

    @property
    def is_in_optimizer(self) -> bool:
        """Whether the peak is in the optimizer's step."""
        return self.estimate.phase is Phase.OPTIMIZER

    @cached_property
    def notable(self) -> frozenset[Category]:
        """Categories that take a notable share of the peak."""
        least = MIN_SHARE * self.estimate.requested.estimate
        return frozenset(category for category, nbytes in self.estimate.categories.items() if nbytes >= least)

    @property
    def has_gradients(self) -> bool:
        """Whether gradients are a notable part of the peak of training."""
        return self.is_training and Category.GRADIENT in self.notable

    @property
    def grows_with_batch(self) -> bool:
        """Whether what follows the batch is a notable part of a peak outside of the optimizer's step."""
        return not self.is_in_optimizer and not self.notable.isdisjoint(_BY_BATCH)

    def runs(self, op: str) -> bool:
        """Whether the forward has a kernel whose name begins with `aten.` and `op`."""
        return any(node.op.startswith(f"aten.{op}") and node.phase is Phase.FORWARD for node in self.trace.nodes)


class Names(NamedTuple):
    """What the parts of a program are called."""

    modules: Sequence[tuple[str, str]]
    """As in `Trace`."""
    variables: Mapping[Origin, str]
    """Who holds the Buffers of an origin."""

    def of_modules(self, paths: Sequence[str]) -> str:
        """How many modules of which class, the first and the last."""
        kind = dict(self.modules).get(paths[0], "")
        if len(paths) == 1:
            return f"`{paths[0]}` ({kind})"
        every = "every second one, " if _is_every_second(paths) else ""
        return f"{len(paths)} `{kind}` modules, {every}`{paths[0]}` to `{paths[-1]}`"

    def of_buffer(self, origin: Origin) -> str:
        """Variable, dtype, shape and line of the Buffers of an origin."""
        _, frame, _, shape, dtype, _ = origin
        made = f" made at {Path(frame.path).name}:{frame.line}" if frame else ""
        variable = f"`{self.variables[origin]}`, the " if origin in self.variables else "the "
        return f"{variable}{dtype} {list(shape)}{made}"


class ChangedProgram:
    """A fresh `program` with Changes made one after the other, to be set up once.

    `setup` raises NotApplicableError where one cannot be made. Some mean nothing only once a step runs: then `step`
    raises it, or what wraps it.
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
        """The same as another rank."""
        return ChangedProgram(self.program.as_rank(number), *self.changes)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)


def model_of(program: Any) -> nn.Module:
    """The program's model; raises NotApplicableError if it has none."""
    from torch import nn

    if not isinstance(program.model, nn.Module):
        raise NotApplicableError
    return program.model


def roots_of_script(program: Any) -> Sequence[nn.Module]:
    """The modules that a script calls itself; none where the program is no script."""
    return getattr(program, "roots", ())


def run_within(program: Any, manager: Callable[[], AbstractContextManager[object]]) -> None:
    """Let each step of a program run within such a context, and of a script all that is left of it."""
    if hasattr(program, "rest"):
        program.rest.enter_context(manager())
        return
    step = program.step

    def step_within() -> None:
        with manager():
            step()

    program.step = step_within


def modules_at(program: Any, paths: Sequence[str]) -> list[nn.Module]:
    """The modules of the program's model at `paths`; raises NotApplicableError if one is missing."""
    modules = dict(model_of(program).named_modules())
    if not modules.keys() >= set(paths):
        raise NotApplicableError
    return [modules[path] for path in paths]


def declared(program: Any) -> Program:
    """The program as one that is built from a Workload; raises NotApplicableError if it is not."""
    from memlint.workloads.construction.program import Program

    if not isinstance(program, Program):
        raise NotApplicableError
    return program


def _is_every_second(paths: Sequence[str]) -> bool:
    """Whether the paths are those of layers 0, 2, 4 and so on of one list."""
    numbers = [int(number) if number.isdigit() else -1 for number in (path.rpartition(".")[2] for path in paths)]
    return len({path.rpartition(".")[0] for path in paths}) == 1 and all(
        later - number == 2 for number, later in pairwise(numbers)
    )

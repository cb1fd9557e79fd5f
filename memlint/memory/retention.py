"""Buffers that steps leave behind: Buffers that every step adds, and Buffers that only the next step releases."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_

from memlint.memory.liveness import KEPT_FOR_GOOD, Origin, origin
from memlint.memory.records import Buffer, Frame
from memlint.memory.timeline import Timeline, live


@dataclass(frozen=True, slots=True)
class Keeper:
    """A variable that outlives a step, and keeps a Buffer alive."""

    variable: str
    """The variable as code, if known: `losses[0]`, `self.total`."""
    has_graph: bool
    """True if the tensor there has an autograd graph."""
    frame: Frame
    """Function that knows the variable, at its first line."""

    @property
    def name(self) -> str:
        """The variable without its items: `losses` of `losses[0]`."""
        return self.variable.partition("[")[0]


@dataclass(frozen=True, slots=True)
class Holder:
    """The Python variable that alone keeps a Buffer alive, and the line its function was at."""

    variable: str
    """The variable as code: `outputs.logits`."""
    frame: Frame
    names: tuple[str, ...]
    """Names that a `del` has to take to free the Buffer: `outputs`, or more names for the same."""


@dataclass(frozen=True, slots=True)
class LongRun:
    """Several steps in a row, and the variables that keep the Buffers alive after the last."""

    timeline: Timeline
    keepers: Mapping[int, Keeper]
    """Keepers by id of the Buffer; Buffers that no variable keeps are missing."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Buffers that every step adds, and that are kept by one variable."""

    buffers: tuple[Buffer, ...]
    """Buffers of the last step but one, biggest first."""
    keeper: Keeper | None

    @property
    def nbytes(self) -> int:
        """Requested bytes that each step adds."""
        return sum(buffer.nbytes for buffer in self.buffers)


def may_grow(timeline: Timeline) -> bool:
    """Return True if every step leaves Buffers behind, and later steps do not release those of earlier ones."""
    return timeline.num_steps > 1 and bool(_added_by_all(timeline))


_MIN_STEPS = 3
"""Smallest number of steps: a name rebound in each step holds Buffers of two steps if a run ends between them."""


def growths(run: LongRun) -> tuple[Growth, ...]:
    """Find the Buffers that every step adds, most bytes first, if live bytes grow with each of the last two steps."""
    timeline, nbytes = run.timeline, [0, *live(run.timeline)]
    if timeline.num_steps < _MIN_STEPS:
        return ()
    ends = (*(bisect_left(timeline.event_nodes, node) for node in timeline.step_nodes[-2:]), len(timeline.events))
    if not nbytes[ends[0]] < nbytes[ends[1]] < nbytes[ends[2]]:
        return ()
    added = _added_by_all(timeline)
    groups: defaultdict[str, list[Buffer]] = defaultdict(list)
    for buffer in _left_behind(timeline, timeline.num_steps - 2):
        if added[origin(buffer)]:
            added[origin(buffer)] -= 1
            keeper = run.keepers.get(buffer.id)
            groups[keeper.name if keeper else ""].append(buffer)
    growths = (
        Growth(tuple(sorted(buffers, key=lambda buffer: (-buffer.nbytes, buffer.id))), run.keepers.get(buffers[0].id))
        for buffers in groups.values()
    )
    return tuple(sorted(growths, key=lambda growth: -growth.nbytes))


def _added_by_all(timeline: Timeline) -> Counter[Origin]:
    """Count, by origin, the Buffers that each of the steps has added and none has released."""
    steps = [Counter(map(origin, _left_behind(timeline, step))) for step in range(timeline.num_steps)]
    return reduce(and_, steps) if steps else Counter()


def _left_behind(timeline: Timeline, step: int) -> Iterator[Buffer]:
    """Yield a step's Buffers on the device that are alive after the last step."""
    opened = {event for event in timeline.events if event >= 0}  # Buffers of the host are in no event
    alive = (b for b in timeline.buffers if b.step == step and b.died is None and b.id in opened)
    return (b for b in alive if b.nbytes > 0 and b.category not in KEPT_FOR_GOOD and not b.is_in_cycle)

"""A plan: Changes that bring a peak below a limit, found one after the other.

Savings do not add up, because the peak moves. So each round simulates every candidate on top of what was chosen so far,
and keeps the one with the lowest new peak.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from memlint.base.errors import MemlintError
from memlint.base.units import Measure
from memlint.memory.liveness import Origin, origin
from memlint.memory.records import Trace
from memlint.memory.retention import Holder
from memlint.targets.workload import Workload
from memlint.whatif.change import MIN_SHARE, Change, Effect, NotApplicableError, Situation
from memlint.whatif.changes import CHANGES, DropReference
from memlint.whatif.changes.drop_reference import dead_references
from memlint.whatif.simulation import Simulation, WhatIf

MAX_TRACES = 60
"""Number of traces after which no further round begins."""
_MAX_NODES = 200_000
"""Number of traced kernels after which no further round begins: about a minute."""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """Changes in the order in which to make them; empty if the limit holds already or nothing lowers the peak."""

    limit: int
    """Limit in bytes."""
    measure: Measure
    """The peak that is compared with the limit."""
    steps: tuple[WhatIf, ...]
    """Steps of the plan, each with the Change that it adds last, after all before it."""
    met: bool
    """True if the peak, its doubts included, stays within the limit after the last step."""
    variables: dict[Origin, str]
    """Names of the variables that hold the Buffers to release."""
    num_traces: int


@dataclass
class Planner:
    """Finds a plan for one Workload."""

    workload: Workload
    simulation: Simulation
    find_holders: Callable[[tuple[Change, ...], int, Collection[int]], Mapping[int, Holder]]
    """Finds the variables that hold Buffers of the program with some Changes, at an event of its trace."""
    limit: int
    measure: Measure = "device"
    dynamics: bool = False
    """True if Changes of the dynamics of training are allowed."""
    at_any_batch: bool = False
    """True if only Changes are allowed that mean the same for a program with any batch."""
    exact: bool = False
    """True if only Changes are allowed that leave every value unchanged."""
    _variables: dict[Origin, str] = field(default_factory=dict)
    _useless: set[Change] = field(default_factory=set)

    def plan(self) -> ChangePlan:
        """Choose greedily, then drop unnecessary Changes and replace others by cheaper ones."""
        current = self.simulation.what_if()
        assert current is not None
        first = self.simulation.num_traces
        while not self._fits(current) and not self._is_exhausted(first):
            best = self._best(current)
            if best is None:
                break
            current = best
        chosen = self._shortened(current.changes) if self._fits(current) else current.changes
        answers = (self.simulation.what_if(*chosen[:number]) for number in range(1, len(chosen) + 1))
        return ChangePlan(
            limit=self.limit,
            measure=self.measure,
            # Some Changes mean something only together with the next.
            steps=tuple(answer for answer in answers if answer is not None),
            met=self._fits(current),
            variables=self._variables,
            num_traces=self.simulation.num_traces - first,
        )

    def _is_exhausted(self, first: int) -> bool:
        num_traces = self.simulation.num_traces - first
        return num_traces >= MAX_TRACES or num_traces * len(self.simulation.trace().nodes) >= _MAX_NODES

    def _fits(self, answer: WhatIf) -> bool:
        return bool(getattr(answer.estimate, self.measure).high <= self.limit)

    def _peak(self, answer: WhatIf) -> int:
        return int(getattr(answer.estimate, self.measure).estimate)

    def _best(self, current: WhatIf) -> WhatIf | None:
        """Return the Changes with one more, or with one replaced, that give the lowest peak; None if none is lower."""
        trace = self.simulation.trace(*current.changes)
        dropping = None if self.at_any_batch else self._dropping(current, trace)
        answers = [] if dropping is None else [dropping]
        for change in self._candidates(Situation(self.workload, trace, current.estimate, current.changes)):
            answer = self.simulation.what_if(*_with(current.changes, change))
            if answer is None:
                self._useless.add(change)
            else:
                answers.append(answer)
        most = (1 - MIN_SHARE) * self._peak(current)
        lower = [answer for answer in answers if self._fits(answer) or self._peak(answer) <= most]
        # Of equal peaks take the Change that alters training least, then the one that computes least.
        return min(lower, key=lambda each: (self._peak(each), each.effect.severity, each.recompute_flops), default=None)

    def _candidates(self, situation: Situation) -> Iterator[Change]:
        """Yield the Changes to try next, except releases of variables."""
        kinds = {type(change) for change in situation.chosen}
        for kind in CHANGES:
            if kind in kinds and not kind.can_follow_itself:
                continue
            if (self.exact and kind.effect is not Effect.EXACT) or (self.at_any_batch and kind.sets_batch):
                continue
            for change in kind.candidates(situation):
                is_allowed = self.dynamics or change.effect_in(situation.trace) is not Effect.DYNAMICS
                if is_allowed and change not in self._useless:
                    yield change

    def _dropping(self, current: WhatIf, trace: Trace) -> WhatIf | None:
        """Return the release of Buffers that only variables hold at the peak, if that is worth while."""
        chosen, node = current.changes, current.estimate.peak_node
        known = {each for change in chosen if isinstance(change, DropReference) for each in change.origins}
        dead = [buffer for buffer in dead_references(trace, node) if origin(buffer) not in known]
        if node < 0 or sum(buffer.nbytes for buffer in dead) < MIN_SHARE * self._peak(current):
            return None
        try:
            holders = self.find_holders(chosen, trace.nodes[node].event, [buffer.id for buffer in dead])
        except (MemlintError, NotApplicableError):
            return None
        loose = {origin(buffer): holders[buffer.id].variable for buffer in dead if buffer.id in holders}
        self._variables.update(loose)
        change = DropReference(tuple(dict.fromkeys((*known, *loose))))
        return self.simulation.what_if(*_with(chosen, change)) if loose else None

    def _shortened(self, chosen: tuple[Change, ...]) -> tuple[Change, ...]:
        """Drop unnecessary Changes, and use cheaper ones where they suffice."""
        for change in chosen:
            fewer = tuple(each for each in chosen if each != change)
            answer = self.simulation.what_if(*fewer)
            if answer is not None and self._fits(answer):
                chosen = fewer
            elif answer is not None:
                others = change.cheaper(answer.estimate, partial(self.simulation.trace, *fewer))
                options = [tuple(other if each == change else each for each in chosen) for other in others]
                options.append(chosen)
                chosen = options[bisect_left(options, True, hi=len(others), key=self._is_enough)]
        return chosen

    def _is_enough(self, changes: tuple[Change, ...]) -> bool:
        answer = self.simulation.what_if(*changes)
        return answer is not None and self._fits(answer)


def _with(chosen: tuple[Change, ...], change: Change) -> tuple[Change, ...]:
    """Add `change` after the others, in the place of one of its kind."""
    return (*(each for each in chosen if type(each) is not type(change)), change.joined(chosen))

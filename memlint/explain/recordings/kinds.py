"""Phase and category of recorded allocations, as far as stacks, lifetimes, sizes and order tell.

A recording knows bytes and stacks, not tensors. Nearly every category here is an inference, and says so.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memlint.capture.lifetimes import BEFORE, Lifetimes
from memlint.capture.recorded import ALLOC, Column, Recording, Site
from memlint.explain.recordings.steps import Steps
from memlint.memory.records import Category, Phase

_CATEGORIES: Final = tuple(Category)
_PHASES: Final = tuple(Phase)
_STATES: Final = 2
"""States of Adam and its kin for each parameter."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """Columns by allocation."""

    categories: Column
    """Positions in Category."""
    phases: Column
    """Positions in Phase: when it was made."""
    tells_phases: bool
    """True if the recording tells the phases."""
    backward: Sequence[int]
    """Positions of the allocations of the backward in the events."""

    def category(self, number: int) -> Category:
        """Return the category of an allocation."""
        return _CATEGORIES[self.categories[number]]

    def phase(self, number: int) -> Phase:
        """Return the phase in which it was made."""
        return _PHASES[self.phases[number]]


def kinds(recording: Recording, alive: Lifetimes, steps: Steps, failure: int | None = None) -> Kinds:
    """Tell the category and phase of every allocation.

    What is freed after a `failure`, a position in the events, is freed because of it, and counts as never freed.
    """
    phase_of_site = _phases(recording.sites)
    tells = any(phase in (Phase.BACKWARD, Phase.OPTIMIZER) for phase in phase_of_site)
    phases = array("b", bytes(len(alive)))
    for number in range(len(alive)):
        site = alive.sites[number]
        known = site >= 0 and alive.born[number] != BEFORE
        phases[number] = _PHASES.index(phase_of_site[site] if known else Phase.OTHER)
    categories = array("b", bytes(len(alive)))
    teller = _Teller(recording, alive, steps, phases, phase_of_site, failure)
    for number in range(len(alive)):
        categories[number] = _CATEGORIES.index(teller.category(number))
    if tells:
        _by_size(alive, steps, categories)
    return Kinds(categories, phases, tells, teller.backward)


def _phases(sites: tuple[Site, ...]) -> list[Phase]:
    """The phase of each stack. Without C++ frames, the backward's thread has none at all, and the rest is forward."""
    phases = [site.phase for site in sites]
    if any(site.has_frames for site in sites) and not any(site.op for site in sites):
        for number, site in enumerate(sites):
            if phases[number] is Phase.OTHER:
                phases[number] = Phase.FORWARD if site.has_frames else Phase.BACKWARD
    return phases


class _Teller:
    """Tells categories one by one."""

    def __init__(
        self,
        recording: Recording,
        alive: Lifetimes,
        steps: Steps,
        phases: Column,
        phase_of_site: list[Phase],
        failure: int | None,
    ) -> None:
        self.recording, self.alive, self.phases = recording, alive, phases
        self.ends = steps.ends
        self.num_events = alive.num_events
        self.died = alive.died
        if failure is not None:
            self.died = array("q", (each if each < failure else self.num_events for each in alive.died))
        events = recording.events
        self.backward = [
            position
            for position, (action, site) in enumerate(zip(events.actions, events.sites, strict=True))
            if action == ALLOC and site >= 0 and phase_of_site[site] is Phase.BACKWARD
        ]
        self.optimizer = [
            position
            for position, site in enumerate(events.sites)
            if site >= 0 and phase_of_site[site] is Phase.OPTIMIZER
        ]

    def category(self, number: int) -> Category:
        """Tell the category of an allocation."""
        alive, born = self.alive, self.alive.born[number]
        recorded = self.recording.categories.get(born, alive.categories.get(number, Category.OTHER))
        if recorded is not Category.OTHER:
            return recorded
        site = self.recording.site(alive.sites[number])
        if site is not None and site.makes_workspace:
            return Category.WORKSPACE
        is_kept = self.died[number] == self.num_events or self.died[number] > self._end_of_step(born)
        if site is not None and site.moves_module and is_kept:
            return Category.PARAMETER
        phase = Phase.OTHER if born != BEFORE else site.phase if site is not None else Phase.OTHER
        if born != BEFORE:
            phase = _PHASES[self.phases[number]]
        match phase:
            case Phase.OPTIMIZER:
                return Category.OPTIMIZER_STATE if self._outlives_optimizer(number) else Category.TEMPORARY
            case Phase.BACKWARD:
                is_gradient = (site is not None and site.accumulates) or self._reaches_optimizer(number)
                return Category.GRADIENT if is_gradient else Category.TEMPORARY
            case Phase.FORWARD:
                return self._of_forward(number, is_kept=is_kept)
        return Category.OTHER

    def _end_of_step(self, born: int) -> int:
        """The end of the step in which something was born; the end of all events if there is none."""
        index = bisect_left(self.ends, born)
        return self.ends[index] if index < len(self.ends) else self.num_events

    def _outlives_optimizer(self, number: int) -> bool:
        died = self.died[number]
        return died > self._end_of_step(self.alive.born[number]) or (
            died == self.num_events and not self._is_last(number)
        )

    def _is_last(self, number: int) -> bool:
        """True if the recording ends within the phase in which the allocation was made."""
        born = self.alive.born[number]
        return bisect_left(self.ends, born) == len(self.ends)

    def _reaches_optimizer(self, number: int) -> bool:
        """True if an optimizer steps while it is alive; if none steps afterwards, if it is never freed."""
        born, died = self.alive.born[number], self.died[number]
        index = bisect_left(self.optimizer, born)
        if index == len(self.optimizer):
            return died == self.num_events
        return self.optimizer[index] < died

    def _of_forward(self, number: int, *, is_kept: bool) -> Category:
        born, died = self.alive.born[number], self.died[number]
        first = bisect_left(self.backward, born)
        backward_follows = first < len(self.backward)
        if died == self.num_events:
            if not backward_follows and self.backward:
                return Category.ACTIVATION  # the recording ends before the backward of this step
            return Category.OTHER
        if is_kept:
            return Category.OTHER
        return Category.ACTIVATION if backward_follows and self.backward[first] < died else Category.TEMPORARY


def _by_size(alive: Lifetimes, steps: Steps, categories: Column) -> None:
    """Take long-lived allocations for parameters and states, as many as there are gradients of that size."""
    first_end = steps.ends[0] if steps.ends else alive.num_events
    gradient, state = _CATEGORIES.index(Category.GRADIENT), _CATEGORIES.index(Category.OPTIMIZER_STATE)
    parameter, other = _CATEGORIES.index(Category.PARAMETER), _CATEGORIES.index(Category.OTHER)
    in_first = (number for number in range(alive.num_before, len(alive)) if alive.born[number] <= first_end)
    gradients = Counter(alive.nbytes[number] for number in in_first if categories[number] == gradient)
    has_states = state in categories
    free = {nbytes: [num, 0 if has_states else _STATES * num] for nbytes, num in gradients.items()}
    for number in range(len(alive)):
        is_long = alive.died[number] == alive.num_events and alive.born[number] < first_end
        if not is_long or categories[number] != other or alive.nbytes[number] not in free:
            continue
        left = free[alive.nbytes[number]]
        if left[0]:
            left[0] -= 1
            categories[number] = parameter
        elif left[1] and alive.born[number] == BEFORE:
            left[1] -= 1
            categories[number] = state

"""The rounds of a traced generation as programs of their own, comparable from round to round."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Self

from memlint.memory.records import Doubt, Storages, Trace
from memlint.scaling.recorded_calls import RecordedCall
from memlint.scaling.scaled import Sample

_WORKSPACES = frozenset(("cublas", "cublaslt"))
SETUP = -2
"""The number of what comes before the generation; what comes before its first call is -1, its prefill is 0."""


class Birth(NamedTuple):
    """The place where a storage opens that outlives its round."""

    round: int
    place: int
    """How many of the same round open before it and outlive the round as well."""


@dataclass(frozen=True, eq=False)
class Rounds:
    """One generation of a trace, cut where the rounds begin."""

    trace: Trace
    calls: Sequence[RecordedCall]
    bounds: tuple[int, ...]
    """Positions in the events: the beginning of each round, and the end of the last."""
    births: dict[int, Birth]
    """For each storage that outlives the round in which it opens, where that is."""
    late: frozenset[int] = frozenset()
    """Storages of those that stay open, although some round frees them."""

    @classmethod
    def of(cls, trace: Trace, calls: Sequence[RecordedCall]) -> Self:
        """Cut the only generation of a trace."""
        start = trace.nodes[trace.step_nodes[0]].event if trace.step_nodes else trace.rounds[0].start
        bounds = (*(each.start for each in trace.rounds), len(trace.events))
        births: dict[int, Birth] = {}
        edges = [0, start, *bounds]
        for number, (first, end) in enumerate(pairwise(edges), start=SETUP):
            opened = dict.fromkeys(event for event in trace.events[first:end] if event >= 0)
            for event in trace.events[first:end]:
                opened.pop(~event, None)
            births |= {buffer: Birth(number, place) for place, buffer in enumerate(opened)}
        return cls(trace, calls, bounds, births)

    def __len__(self) -> int:
        """Return the number of rounds, the prefill included."""
        return len(self.bounds) - 1

    def without_late_frees(self, begin: int) -> Self:
        """Return them with such storages open to the end as a single round frees and one before `begin` has opened.

        Those lie in cycles of references, until Python's garbage collector comes by.
        """
        rounds = range(begin, len(self) - 1)  # the last one may be cut short
        often = Counter(origin for number in rounds for origin in self.origins(number))
        late = {
            buffer
            for number in rounds
            for buffer, origin in zip(self.carried(number), self.origins(number), strict=True)
            if often[origin] == 1 and self.births[buffer].round < begin
        }
        return replace(self, late=frozenset(late))

    def carried(self, number: int) -> list[int]:
        """Return the storages that a round closes and has not opened, oldest first."""
        events = self.trace.events[self.bounds[number] : self.bounds[number + 1]]
        births, late = self.births, self.late
        closed = (~event for event in events if event < 0 and ~event in births and ~event not in late)
        return sorted((buffer for buffer in closed if births[buffer].round < number), key=births.__getitem__)

    def origins(self, number: int) -> tuple[Birth, ...]:
        """Return where the carried storages of a round open, with rounds counted backwards from it."""
        births = (self.births[buffer] for buffer in self.carried(number))
        return tuple(Birth(number - birth.round, birth.place) for birth in births)

    def opened(self, number: int) -> list[int]:
        """Return the storages that a round opens, in order."""
        return [e for e in self.trace.events[self.bounds[number] : self.bounds[number + 1]] if e >= 0]

    def sample(self, number: int, point: int) -> Sample:
        """Return a round as a program of its own, which first opens what it carries; it stands for `point`."""
        first, end = self.bounds[number], self.bounds[number + 1]
        carried = self.carried(number)
        numbers = {buffer: place for place, buffer in enumerate((*carried, *self.opened(number)))}
        renamed = numbers | {~buffer: ~place for buffer, place in numbers.items()}
        own = self.trace.events[first:end]
        events = [*range(len(carried)), *(renamed[event] for event in own if event in renamed)]
        buffers = self.trace.buffers
        storages = Storages(
            sizes=tuple(buffers[buffer].nbytes for buffer in numbers),
            events=tuple(events),
            doubts=tuple(
                Doubt(numbers[each.buffer], each.low, each.high) for each in self.trace.doubts if each.buffer in numbers
            ),
            workspaces=frozenset(place for buffer, place in numbers.items() if buffers[buffer].op in _WORKSPACES),
        )
        shift = len(carried) - first
        calls = tuple(
            each._replace(first=each.first + shift, end=each.end + shift)
            for each in self.calls
            if first <= each.first and each.end <= end and (each.first < end or each.end < end)
        )
        return Sample((point,), storages, calls)

"""Steps of a recorded program, and what is left over from each.

A step ends with the last event under `torch/optim` before something else is allocated. Where no stack tells, a step is
the period with which the same allocations come again.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final, Literal, NamedTuple

from memlint.capture.lifetimes import BEFORE, Lifetimes
from memlint.capture.recorded import ALLOC, OOM, Recording
from memlint.memory.records import Phase

_MOST_SEARCHED: Final = 200_000
_LEAST_PERIOD: Final = 4
_LEAST_REPEATS: Final = 3
_AGREEMENT: Final = 0.9
"""Share of the allocations of a period that must come again: sizes of batches differ, and so do logs."""
_MOST_KEPT: Final = 1 / 8
"""Share of the allocated bytes of a step that may outlive the next one."""
_LEAST_GROWTH: Final = 2**16
"""Bytes a step below which growth is not worth a word."""


class Steps(NamedTuple):
    """Whole steps of a Recording."""

    ends: tuple[int, ...]
    """Position of the last event of each, in order."""
    evidence: Literal["optimizer", "period", "none"]


class Leftover(NamedTuple):
    """Allocations of one place in every step that are never freed."""

    site: int
    """Position in Recording.sites; -1 if it is not recorded."""
    per_step: int
    """Bytes: the median over the steps."""
    nbytes: int
    """Bytes of all steps together."""
    num_steps: int


class Growth(NamedTuple):
    """Memory that stays alive from step to step and grows."""

    per_step: int
    nbytes: int
    """Bytes that the steps after the first have left behind."""
    leftovers: tuple[Leftover, ...]
    """Most bytes first."""


def find_steps(recording: Recording, alive: Lifetimes) -> Steps:
    """Find the steps of a Recording."""
    ends = _optimizer_steps(recording)
    if ends:
        return Steps(tuple(ends), "optimizer")
    ends = _periods(alive)
    if ends and not _are_steps(alive, ends):
        ends = []
    return Steps(tuple(ends), "period" if ends else "none")


def _optimizer_steps(recording: Recording) -> list[int]:
    events, sites = recording.events, recording.sites
    in_optimizer = [site.phase is Phase.OPTIMIZER for site in sites]
    ends: list[int] = []
    last: int | None = None
    for position, (action, site) in enumerate(zip(events.actions, events.sites, strict=True)):
        if site >= 0 and in_optimizer[site]:
            last = position
        elif last is not None and action in (ALLOC, OOM) and (site < 0 or sites[site].frame or sites[site].op):
            ends.append(last)
            last = None
    if last is not None:
        ends.append(last)
    return ends


def _periods(alive: Lifetimes) -> list[int]:
    """Return the ends of periods of the allocations, the last period ending with the last one."""
    start = max(alive.num_before, len(alive) - _MOST_SEARCHED)
    kinds = list(zip(alive.nbytes[start:], alive.sites[start:], alive.streams[start:], strict=True))
    places: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    for place, kind in enumerate(kinds):
        places[kind].append(place)
    distances: Counter[int] = Counter()
    for each in places.values():
        if len(each) >= _LEAST_REPEATS:
            distances.update({second - first for first, second in pairwise(each)})
    num = len(kinds)
    for period in sorted(distance for distance, _ in distances.most_common(50)):
        if period < _LEAST_PERIOD or period * _LEAST_REPEATS > num:
            continue
        compared = range(num - (_LEAST_REPEATS - 1) * period, num)
        same = sum(kinds[place] == kinds[place - period] for place in compared)
        if same >= _AGREEMENT * len(compared):
            begins = _first_repeat(kinds, period)
            return [alive.born[start + place] for place in range(num - 1, begins, -period)][::-1]
    return []


def _are_steps(alive: Lifetimes, ends: Sequence[int]) -> bool:
    """Tell steps from layers, which come again as well, but keep much of what they allocate until the backward."""
    step = made = kept = 0
    for number in range(alive.num_before, len(alive)):
        born = alive.born[number]
        while step < len(ends) and born > ends[step]:
            step += 1
        if 0 < step < len(ends) - 1:
            made += alive.nbytes[number]
            kept += alive.nbytes[number] if alive.died[number] > ends[step + 1] else 0
    return kept <= _MOST_KEPT * made


def _first_repeat(kinds: Sequence[object], period: int) -> int:
    """The first place from which on the period holds: what comes before is no step."""
    end = len(kinds)
    while end - 2 * period >= 0:
        window = range(end - period, end)
        if sum(kinds[place] == kinds[place - period] for place in window) < _AGREEMENT * period:
            break
        end -= period
    return max(end - period, 0) - 1


def growth(alive: Lifetimes, steps: Steps) -> Growth | None:
    """Say what steps leave behind that outlives the next step and all others; None if that is next to nothing.

    Optimizer states and caches are born in the first step, which does not count.
    """
    ends = steps.ends
    if len(ends) < _LEAST_REPEATS:
        return None
    left: defaultdict[int, list[int]] = defaultdict(lambda: [0] * (len(ends) - 1))
    step = 0
    for number in range(alive.num_before, len(alive)):
        born = alive.born[number]
        while step < len(ends) and born > ends[step]:
            step += 1
        if step and step < len(ends) and born != BEFORE and alive.died[number] == alive.num_events:
            left[alive.sites[number]][step - 1] += alive.nbytes[number]
    # What the last step leaves may still be freed in the next.
    leftovers = []
    for site, each in left.items():
        settled = each[:-1]
        if sum(nbytes > 0 for nbytes in settled) > len(settled) / 2 and sum(settled) >= _LEAST_GROWTH:
            leftovers.append(Leftover(site, int(median(settled)), sum(settled), len(settled)))
    leftovers.sort(key=lambda each: -each.nbytes)
    if not leftovers or sum(each.per_step for each in leftovers) < _LEAST_GROWTH:
        return None
    return Growth(sum(each.per_step for each in leftovers), sum(each.nbytes for each in leftovers), tuple(leftovers))

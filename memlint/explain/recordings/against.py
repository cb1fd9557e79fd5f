"""The peak of a Recording beside the peak of the same program on the virtual accelerator, Buffer by Buffer."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final, NamedTuple, TypeAlias

from memlint.explain.recordings.evidence import Evidence
from memlint.memory.records import Buffer, Category, Frame, Trace
from memlint.memory.timeline import Timeline, alive_at, peak_event


class Held(NamedTuple):
    """An allocation that is alive at a peak."""

    nbytes: int
    place: str
    """Name of the file, and the line: folders differ between machines. Empty if no line is known."""
    category: Category
    label: str
    """Operator, module or name: what is known beside the line."""


class Against(NamedTuple):
    """Both peaks, and what they share."""

    recorded: int
    simulated: int
    pairs: tuple[tuple[Held, Held], ...]
    """Recorded and simulated allocations of the same bytes: of one line, or else of one category, or of any."""
    only_recorded: tuple[Held, ...]
    only_simulated: tuple[Held, ...]
    """Most bytes first."""


_Key: TypeAlias = Callable[[Held], Hashable]
_KEYS: Final[tuple[_Key, ...]] = (
    lambda held: (held.nbytes, held.place) if held.place else None,
    lambda held: (held.nbytes, held.category) if held.category is not Category.OTHER else None,
    lambda held: held.nbytes,
)
"""Properties that two allocations must share, the strongest first; None: it is compared later."""


def against(evidence: Evidence, trace: Trace) -> Against:
    """Pair what is alive at the failure, or else at the peak, with what is alive at the peak of a Trace."""
    recorded = list(_recorded(evidence))
    timeline = Timeline.of(trace)
    expected = [_simulated(buffer) for buffer in alive_at(timeline, peak_event(timeline))]
    pairs: list[tuple[Held, Held]] = []
    left, right = recorded, expected
    for key in _KEYS:
        more, left, right = _paired(left, right, key)
        pairs += more
    return Against(
        recorded=sum(each.nbytes for each in recorded),
        simulated=sum(each.nbytes for each in expected),
        pairs=tuple(pairs),
        only_recorded=tuple(sorted(left, key=lambda each: -each.nbytes)),
        only_simulated=tuple(sorted(right, key=lambda each: -each.nbytes)),
    )


def _paired(
    left: Iterable[Held], right: Iterable[Held], key: _Key
) -> tuple[list[tuple[Held, Held]], list[Held], list[Held]]:
    """Pair those of equal keys in their order; return the pairs, and what is left of both."""
    waiting: defaultdict[Hashable, list[Held]] = defaultdict(list)
    rest_of_right: list[Held] = []
    for each in right:
        of = key(each)
        (rest_of_right if of is None else waiting[of]).append(each)
    pairs, rest_of_left = [], []
    for each in left:
        of = key(each)
        if of is not None and waiting.get(of):
            pairs.append((each, waiting[of].pop(0)))
        else:
            rest_of_left.append(each)
    return pairs, rest_of_left, [*rest_of_right, *(each for group in waiting.values() for each in group)]


def _recorded(evidence: Evidence) -> Iterator[Held]:
    alive, told = evidence.alive, evidence.kinds
    moment = evidence.course.peak if evidence.failure is None else evidence.failure.position
    for number in alive.alive_at(moment):
        site = evidence.recording.site(alive.sites[number])
        label = site.op if site else ""
        yield Held(alive.nbytes[number], _place(site.frame if site else None), told.category(number), label)


def _simulated(buffer: Buffer) -> Held:
    return Held(buffer.nbytes, _place(buffer.frame), buffer.category, buffer.name or buffer.module or buffer.op)


def _place(frame: Frame | None) -> str:
    if frame is None:
        return ""
    own = frame.of_project
    return f"{PurePosixPath(own.path.replace(chr(92), '/')).name}:{own.line}"

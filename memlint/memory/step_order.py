"""The steps of a Timeline in another order, or one in place of another: the allocator's view of other batches.

A step goes from the end of the backward or optimizer before it to the end of its own, so that the inputs that it makes
are in it. It closes the Buffers that the step before has left, such as its loss, where the program rebinds the name.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from memlint.memory.records import Buffer, Node, Phase
from memlint.memory.timeline import Timeline

_Place: TypeAlias = tuple[str, Phase, str, int]
"""Position of a Node in its step: kernel, phase, module, and the number of equal ones before it."""
_Kind: TypeAlias = tuple[object, ...]


class Folded(NamedTuple):
    """Buffers and their opening and closing, as `memlint.memory.estimate` folds them."""

    sizes: list[int]
    """Bytes of each Buffer."""
    events: Sequence[int]


class _Event(NamedTuple):
    """An event of a Timeline and its position; None closes the next Buffer that the step before has left."""

    place: _Place | None
    event: int | None


class Steps:
    """Steps that may be put in another order: all leave the same kinds of Buffers to the next. Raises ValueError."""

    def __init__(self, timeline: Timeline, nodes: Sequence[Node]) -> None:
        self._buffers = timeline.buffers
        self._before: list[int] = []
        """Events of the setup."""
        self._steps: list[list[_Event]] = [[] for _ in timeline.step_nodes]
        self._owners: dict[int, int] = {}
        """Step that opens each Buffer; Buffers of the setup are missing."""
        ends = list(_ends(timeline, nodes))
        if timeline.streams.own or timeline.streams.emptied or len(ends) < 3:
            raise ValueError("several streams, an emptied cache, or no steps to compare")
        places = dict(_places(nodes, ends))
        for event, node in zip(timeline.events, timeline.event_nodes, strict=True):
            step = bisect_left(ends, node) if node >= timeline.step_nodes[0] else -1
            if step < 0:
                self._before.append(event)
            elif step < len(ends) and not (event < 0 and step > 1 and ~event not in self._owners):
                self._steps[step].append(_Event(places.get(node), event))
                if event >= 0:
                    self._owners[event] = step
        self._begin_with_inputs()
        self._left = self._find_left()
        for_good = {each.event for each in self._steps[0] if each.event is not None and each.event >= 0}
        closed = {~event for step in self._steps[:2] for _, event in step if event is not None and event < 0}
        self._for_good = for_good - closed - set(self._left[0])
        """Buffers that the first step opens for all steps: workspaces and optimizer state."""

    @property
    def nbytes(self) -> list[int]:
        """Bytes that each step opens, without Buffers that are opened once for all steps."""
        return [
            sum(self._buffers[e].nbytes for _, e in step if e is not None and e >= 0 and e not in self._for_good)
            for step in self._steps
        ]

    def in_order(self, order: Sequence[int]) -> Folded:
        """Return the setup and these steps one after the other; a step may occur several times. Raises ValueError."""
        sizes: list[int] = []
        events: list[int] = []
        numbers: dict[int, int] = {}

        def happens(event: int) -> None:
            if event >= 0:
                numbers[event] = len(sizes)
                sizes.append(self._buffers[event].nbytes)
                events.append(numbers[event])
            else:
                events.append(~numbers[~event])

        for before in self._before:
            happens(before)
        left: list[int] = []
        for position, step in enumerate(order):
            closing = iter(left)
            for event in self._begun_with(step) if position == 0 else self._later(step):
                if event is not None:
                    happens(event)
                elif position:
                    events.append(~next(closing))
            left = [numbers[buffer] for buffer in self._left[step]]
        return Folded(sizes, events)

    def _begin_with_inputs(self) -> None:
        """Move Buffers that the setup opens and one of the first two steps closes to the first step."""
        closed = {~event for step in self._steps[:2] for _, event in step if event is not None and event < 0}
        inputs = [event for event in self._before if event in closed and event not in self._owners]
        self._before = [event for event in self._before if event not in set(inputs)]
        self._steps[0][:0] = [_Event(None, event) for event in inputs]
        self._owners |= dict.fromkeys(inputs, 0)

    def _find_left(self) -> list[list[int]]:
        """Return the Buffers that each step leaves for the next to close, in the order of closing.

        Mark these closings.
        """
        left: list[list[int]] = []
        for number, step in enumerate(self._steps):
            foreign = [~e for _, e in step if e is not None and e < 0 and self._owners.get(~e) != number]
            if any(self._owners.get(buffer) != number - 1 for buffer in foreign):
                raise ValueError("a step closes what an earlier one than the last has opened")
            closings = {~buffer for buffer in foreign}
            self._steps[number] = [each._replace(event=None) if each.event in closings else each for each in step]
            if number:
                left.append(foreign)
        kinds = [[_kind(self._buffers[buffer]) for buffer in foreign] for foreign in left]
        if any(each != kinds[0] for each in kinds):
            raise ValueError("not all steps leave the same")
        left.append(self._left_by_last(kinds[0]))
        self._steps[0] = self._with_closings(self._steps[0])
        return left

    def _left_by_last(self, kinds: Sequence[_Kind]) -> list[int]:
        """Find the Buffers of these kinds that the last step leaves.

        The end of the program's function may close them.
        """
        last = self._steps[-1]
        opens = [position for position, (_, event) in enumerate(last) if event is not None and event >= 0]
        closed = {~event for _, event in last[: opens[-1]] if event is not None and event < 0} if opens else set()
        open_ = dict.fromkeys(event for _, event in last if event is not None and event >= 0 and event not in closed)
        buffers: list[int] = []
        for kind in kinds:
            buffer = next((each for each in open_ if _kind(self._buffers[each]) == kind), None)
            if buffer is None:
                raise ValueError("the last step leaves something else")
            del open_[buffer]
            buffers.append(buffer)
        self._steps[-1] = [each for each in last if each.event is None or ~each.event not in buffers]
        return buffers

    def _with_closings(self, first: list[_Event]) -> list[_Event]:
        """Return the first step with closings where the second has them; its inputs are made in the setup."""
        places = {each.place for each in first}
        position = sum(each.place is None for each in first)
        for place, event in self._steps[1]:
            if place in places:
                position = max(n for n, each in enumerate(first) if each.place == place) + 1
            if event is None:
                first = [*first[:position], _Event(place, None), *first[position:]]
                position += 1
        return first

    def _later(self, step: int) -> Iterator[int | None]:
        return (event for _, event in self._steps[step] if event not in self._for_good)

    def _begun_with(self, step: int) -> Iterator[int | None]:
        """Yield the events of a step that comes first: it opens the Buffers that are opened once for all steps."""
        if step == 0:
            yield from (event for _, event in self._steps[0])
            return
        pending = [each for each in self._steps[0] if each.event in self._for_good]
        for place, event in self._steps[step]:
            while pending and place is not None and _is_at(pending[0].place, place, self._steps[step]):
                yield pending.pop(0).event
            yield event
        yield from (each.event for each in pending)


def _ends(timeline: Timeline, nodes: Sequence[Node]) -> Iterator[int]:
    """Yield the last Node of each step's backward or optimizer."""
    for first, end in zip(timeline.step_nodes, (*timeline.step_nodes[1:], len(nodes)), strict=True):
        last = (n for n in range(end - 1, first - 1, -1) if nodes[n].phase in (Phase.BACKWARD, Phase.OPTIMIZER))
        if (node := next(last, None)) is not None:
            yield node


def _places(nodes: Sequence[Node], ends: Sequence[int]) -> Iterator[tuple[int, _Place]]:
    counts: Counter[tuple[str, Phase, str]] = Counter()
    begins = {end + 1 for end in ends}
    for node in nodes:
        if node.index in begins:
            counts.clear()
        key = node.op, node.phase, node.module
        yield node.index, (*key, counts[key])
        counts[key] += 1


def _is_at(wanted: _Place | None, place: _Place, step: Sequence[_Event]) -> bool:
    """Return True if another step opens here what the first opens at a place, or else where its phase begins."""
    if wanted is None or wanted == place:
        return True
    return wanted[1] is place[1] and all(each.place != wanted for each in step)


def _kind(buffer: Buffer) -> _Kind:
    return buffer.op, buffer.frame, buffer.module, buffer.dtype, buffer.category

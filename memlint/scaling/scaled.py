"""Memory of a program at sizes that were not traced, from traces at a few sizes.

Every whole number in the arguments of a kernel call is a polynomial of degree two at most in each size: the batch
occurs once in most, and twice in contrastive losses and in attention written out. Calls with the same polynomials form
a Group, which computes their storages at another size. The Groups replace the calls in the trace. Storages between the
calls, and those of calls that cannot be made alone or that depend on the values of tensors, are polynomials themselves.

No prediction is used unchecked: the caller compares `Scaled` with one more trace.
"""

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import NamedTuple, Self, TypeAlias

import numpy as np

from memlint.accelerator.inference import Remembered
from memlint.memory.allocator.fast import integers
from memlint.memory.records import ONE_STREAM, Doubt, Storages, Streams, Trace
from memlint.scaling.groups import Group
from memlint.scaling.polynomials import Grid, Point, size_name
from memlint.scaling.recorded_calls import Born, Calls, Pattern, RecordedCall, pattern_of


class NotScalableError(Exception):
    """The traces do not determine the memory at another size; the message says why."""


@dataclass(frozen=True)
class Sample:
    """Storages at one point, and the calls that made them."""

    point: Point
    storages: Storages
    calls: tuple[RecordedCall, ...]

    @classmethod
    def of_trace(cls, point: Point, trace: Trace, calls: Calls) -> Self:
        """Take a Trace for one, during which `calls` were recorded: its recorder has changed none of its storages."""
        sizes = tuple(buffer.nbytes for buffer in trace.buffers)
        workspaces = calls.workspaces.numbers if calls else frozenset()
        return cls(point, Storages(sizes, trace.events, trace.doubts, workspaces, trace.streams), tuple(calls))

    def born(self, buffer: int) -> Born:
        """Bytes of a Buffer, with their bounds."""
        nbytes = self.storages.sizes[buffer]
        doubt = self._doubts.get(buffer)
        return Born(nbytes, doubt.low, doubt.high) if doubt else Born(nbytes, nbytes, nbytes)

    @functools.cached_property
    def _doubts(self) -> dict[int, Doubt]:
        return {doubt.buffer: doubt for doubt in self.storages.doubts}


@dataclass(frozen=True, eq=False)
class Lives:
    """Storages of a program, for comparison."""

    sizes: np.ndarray
    """(storages): bytes, in order of birth"""
    events: np.ndarray
    """Events as in Trace."""
    doubts: list[Doubt]
    streams: Streams = ONE_STREAM

    def __eq__(self, other: object) -> bool:
        """Return True if all fields are equal."""
        return (
            isinstance(other, Lives)
            and np.array_equal(self.sizes, other.sizes)
            and np.array_equal(self.events, other.events)
            and (self.doubts, self.streams) == (other.doubts, other.streams)
        )

    __hash__ = None  # type: ignore[assignment]


class _Step(NamedTuple):
    """An element of the trace that is the same at every size: storages that open or close, or a call."""

    opens: tuple[int, ...] = ()
    """Slots of the storages that open: storages that exist at every size, numbered in order of birth."""
    closes: int | None = None
    call: int | None = None
    """Position in the calls; then `opens` are the storages that the call leaves open."""
    fitted: bool = False
    """True if the sizes of the storages it leaves open depend on more than its arguments."""
    workspaces: tuple[tuple[int, int], ...] = ()
    """Workspaces of libraries that open during the call: number of the call's events before it, and slot."""
    stream: int = 0
    """CUDA stream of the storages that open."""


_Structure: TypeAlias = "tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]"
"""Events and remaining births of each Group that is not steady."""


class _Template(NamedTuple):
    """Lives without sizes."""

    events: np.ndarray
    rows: np.ndarray
    """(storages): index of each size among slots, births of steady Groups and births of the others."""
    own: dict[int, int]
    """Storages of other CUDA streams than the default one, as in Streams."""


@dataclass
class Scaled:
    """Traces at the points of a grid as one; made with `of`, and like its other methods inside `virtual_device`."""

    grid: Grid
    samples: tuple[Sample, ...]
    _script: list[_Step]
    _slots: np.ndarray
    """(points, slots, 3): bytes and their bounds"""
    _groups: list[Group]
    _group_of: list[int]
    """Index of the Group of each call."""
    _steady: list[int] = field(default_factory=list)
    _remade: list[int] = field(default_factory=list)
    """Groups that are steady (_steady), and those whose calls are made again (_remade)."""
    _rows: np.ndarray = field(default_factory=lambda: np.empty(0))
    """(points, slots and births of steady Groups, 3)"""
    _numbers: np.ndarray = field(default_factory=lambda: np.empty(0))
    """(points, all numbers of the other Groups)"""
    _templates: dict[_Structure, _Template] = field(default_factory=dict)

    @classmethod
    def of(cls, grid: Grid, samples: Sequence[Sample]) -> Self:
        """Combine traces at the points of `grid`, in their order.

        Raises NotScalableError if they are not one program at several sizes.
        """
        first, *others = samples
        if any(sample.storages.streams.held for sample in samples):
            raise NotScalableError("tensors are used by several CUDA streams")
        if any(sample.storages.streams.emptied for sample in samples):
            raise NotScalableError("the program empties PyTorch's cache")
        for sample in others:
            _refuse_different_calls(first, sample)
        groups, group_of = _grouped(samples)
        fitted = [
            _is_fitted(calls, samples, groups[group])
            for group, *calls in zip(group_of, *(sample.calls for sample in samples), strict=True)
        ]
        script, born = _script_of(first, fitted)
        slots = [born]
        for sample in others:
            other, born = _script_of(sample, fitted)
            if other != script:
                raise NotScalableError(_what_differs(first, script, sample, other))
            slots.append(born)
        rows = np.array(slots, dtype=np.int64).reshape(len(samples), -1, len(Born._fields))
        scaled = cls(grid, tuple(samples), script, rows, groups, group_of)
        scaled._sort()
        return scaled

    def lives(self, point: Point) -> Lives:
        """Compute the storages at `point`.

        Raises NotScalableError if a kernel cannot be called as it would be there.
        """
        if not self.grid.has_lines_to(point):
            raise NotScalableError(
                f"{size_name(point)} is no whole number of steps from {size_name(self.samples[0].point)}"
            )
        patterns, template = self._patterns_and_template(point)
        births = [birth for pattern in patterns for birth in pattern.births]
        rows = self.grid.at(self._rows, point)
        if births:
            rows = np.concatenate([rows, integers(births)])
        sizes = rows[template.rows]
        doubtful = np.flatnonzero((sizes[:, 1] != sizes[:, 0]) | (sizes[:, 2] != sizes[:, 0])).tolist()
        bounds = sizes[doubtful, 1:].tolist()
        doubts = [Doubt(buffer, low, high) for buffer, (low, high) in zip(doubtful, bounds, strict=True)]
        streams = Streams(template.own, {}, self._first_after_index, self.samples[0].storages.streams.oldest_first)
        return Lives(sizes[:, 0], template.events, doubts, streams)

    @functools.cached_property
    def _first_after_index(self) -> int | None:
        return _first_after_index(self.samples[0].storages)

    def resharded(self, point: Point, own: Lives) -> Self | None:
        """Return the same program on another number of ranks, where `own` is its trace at `point`: shards differ.

        None if more differs than sizes that are the same at every point. Raises NotScalableError as `lives`.
        """
        there = self.lives(point)
        if not np.array_equal(there.events, own.events) or (there.doubts, there.streams) != (own.doubts, own.streams):
            return None
        rows = self._patterns_and_template(point)[1].rows
        shards = np.unique(rows[there.sizes != own.sizes])
        if np.any(shards >= self._rows.shape[1]) or np.ptp(self._rows[:, shards], axis=0).any():
            return None
        changed = self._rows.copy()
        are_shards = np.isin(rows, shards)
        changed[:, rows[are_shards]] = own.sizes[are_shards, None]
        is_one_size = np.array_equal(changed[0, rows[are_shards], 0], own.sizes[are_shards])
        return replace(self, _rows=changed) if is_one_size else None

    def settle(self, point: Point) -> None:
        """Make the calls of every Group that is no polynomial up to `point`, as where a size is rounded or halved."""
        steady = [group for group in self._steady if np.ptp(self._groups[group].numbers, axis=0).any()]
        for number in (*steady, *self._remade):
            group = self._groups[number]
            numbers = self.grid.at(group.numbers, point).tolist()
            if group.is_steady:
                group.is_steady = group.has_births(numbers, self.grid.at(group.births, point).tolist())
            if not group.is_steady:
                group.infer_anew()
        self._sort()

    def _sort(self) -> None:
        used = sorted({self._group_of[step.call] for step in self._script if step.call is not None})
        self._steady = [number for number in used if self._groups[number].is_steady]
        self._remade = [number for number in used if not self._groups[number].is_steady]
        self._rows = np.concatenate([self._slots, *(self._groups[number].births for number in self._steady)], axis=1)
        numbers = [self._groups[number].numbers for number in self._remade]
        self._numbers = np.concatenate(numbers, axis=1) if numbers else np.empty((len(self.samples), 0), np.int64)
        self._templates = {}

    def _patterns_and_template(self, point: Point) -> tuple[list[Pattern], _Template]:
        patterns = self._patterns(point)
        structure = tuple((pattern.events, pattern.kept) for pattern in patterns)
        template = self._templates.get(structure)
        if template is None:
            template = self._templates[structure] = self._template(point, structure)
        return patterns, template

    def _patterns(self, point: Point) -> list[Pattern]:
        """Compute the pattern of every Group that is not steady."""
        numbers = self.grid.at(self._numbers, point).tolist()
        patterns: list[Pattern] = []
        spans = pairwise(accumulate((self._groups[n].numbers.shape[1] for n in self._remade), initial=0))
        for number, (first, end) in zip(self._remade, spans, strict=True):
            group = self._groups[number]
            pattern = group.pattern_at(numbers[first:end])
            if pattern is None:
                raise NotScalableError(f"at {size_name(point)} {group.call.kernel.name} fails")
            patterns.append(pattern)
        return patterns

    def _template(self, point: Point, structure: _Structure) -> _Template:
        patterns: dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]] = {}
        row = self._slots.shape[1]
        for number in self._steady:
            known = self._groups[number].patterns[0]
            assert known is not None
            patterns[number] = row, known.events, known.kept
            row += len(known.births)
        for number, (events, left_open) in zip(self._remade, structure, strict=True):
            patterns[number] = row, events, left_open
            row += sum(event >= 0 for event in events)
        writer = _Writer()
        for step in self._script:
            if step.call is None:
                for slot in step.opens:
                    writer.open(slot, slot, step.stream)
                if step.closes is not None:
                    writer.close(step.closes)
                continue
            first, events, left_open = patterns[self._group_of[step.call]]
            if len(left_open) != len(step.opens):
                name = self.samples[0].calls[step.call].call.kernel.name
                raise NotScalableError(f"at {size_name(point)} {name} leaves another number of tensors behind")
            writer.call(step, first, events, dict(zip(left_open, step.opens, strict=True)))
        return _Template(np.array(writer.events), np.array(writer.rows, dtype=np.intp), writer.own)


def lives_of(storages: Storages) -> Lives:
    """Convert the storages of a trace to Lives, for comparison."""
    writer = _Writer()
    for event in storages.events:
        if event >= 0:
            writer.open(event, event)
        else:
            writer.close(~event)
    doubts = {doubt.buffer: doubt for doubt in storages.doubts}
    sizes = [storages.sizes[buffer] for buffer in writer.rows]
    doubtful = ((number, doubts[buffer]) for number, buffer in enumerate(writer.rows) if buffer in doubts)
    known = [Doubt(n, doubt.low, doubt.high) for n, doubt in doubtful if not doubt.low == sizes[n] == doubt.high]
    own = {n: stream for n, buffer in enumerate(writer.rows) if (stream := storages.streams.own.get(buffer))}
    reusable_at = {
        n: storages.streams.held[buffer] for n, buffer in enumerate(writer.rows) if buffer in storages.streams.held
    }
    given = storages.streams
    streams = Streams(own, reusable_at, _first_after_index(storages), given.oldest_first, given.emptied)
    return Lives(integers(sizes), np.array(writer.events), known, streams)


def lives_of_trace(trace: Trace) -> Lives:
    """Convert a Trace to Lives."""
    return lives_of(Sample.of_trace((), trace, Calls()).storages)


def _first_after_index(storages: Storages) -> int | None:
    """The first storage after an index kernel, as in Streams, with storages numbered in order of birth."""
    first = storages.streams.first_after_index
    return None if first is None else sum(0 <= event < first for event in storages.events)


class _Writer:
    """Numbers storages in order of birth, whatever their names, and notes the rows of their sizes."""

    def __init__(self) -> None:
        self.events: list[int] = []
        self.rows: list[int] = []
        self.own: dict[int, int] = {}
        self._ids: dict[object, int] = {}

    def open(self, name: object, row: int, stream: int = 0) -> None:
        number = self._ids[name] = len(self.rows)
        if stream:
            self.own[number] = stream
        self.rows.append(row)
        self.events.append(number)

    def close(self, name: object) -> None:
        self.events.append(~self._ids[name])

    def call(self, step: _Step, first: int, events: Sequence[int], open_slots: dict[int, int]) -> None:
        """Write a call whose births begin at row `first`; `kept` gives the slots of those it leaves open."""
        last = len(events)
        for place, event in enumerate((*events, None)):
            for after, slot in step.workspaces:
                if after == place or (after > last and event is None):
                    self.open(slot, slot, step.stream)
            if event is None:
                return
            birth = event if event >= 0 else ~event
            slot = open_slots.get(birth, -1)
            name: object = slot if slot >= 0 else (step.call, birth)
            if event >= 0:
                self.open(name, slot if step.fitted and slot >= 0 else first + birth, step.stream)
            else:
                self.close(name)


def _grouped(samples: Sequence[Sample]) -> tuple[list[Group], list[int]]:
    """Return the Groups of all calls, and the index of each call's Group."""
    patterns: defaultdict[object, dict[object, tuple[Pattern | None, Remembered]]] = defaultdict(dict)
    groups: list[Group] = []
    numbers: dict[object, int] = {}
    seen: dict[tuple[int, ...], int] = {}
    group_of: list[int] = []
    for recorded in zip(*(sample.calls for sample in samples), strict=True):
        calls = tuple(each.call for each in recorded)
        one = tuple(map(id, calls))
        if one not in seen:
            form = calls[0].kernel, calls[0].form, calls[0].placement
            same = form, *(call.numbers for call in calls)
            if same not in numbers:
                numbers[same] = len(groups)
                groups.append(Group.of(calls, patterns[form]))
            seen[one] = numbers[same]
        group_of.append(seen[one])
    return groups, group_of


def _is_fitted(calls: Sequence[RecordedCall], samples: Sequence[Sample], group: Group) -> bool | None:
    """Return True if the sizes of the storages a call leaves open depend on more than its arguments.

    None if its pattern at some size differs from its Group's: then its storages are polynomials. The check makes a call
    alone and compares it with the trace.
    """
    is_fitted = False
    for call, sample, alone in zip(calls, samples, group.patterns, strict=True):
        traced = _traced(call, sample) if alone is not None else None
        if alone is None or traced is None or alone.events != traced.events:
            return None
        if alone.births != traced.births:
            pairs = enumerate(zip(alone.births, traced.births, strict=True))
            if any(a != b for birth, (a, b) in pairs if birth not in alone.kept):
                return None
            is_fitted = True
    return is_fitted


def _traced(call: RecordedCall, sample: Sample) -> Pattern | None:
    """Return the pattern of the call in its trace, without workspaces."""
    storages = sample.storages
    if call.first == call.end:
        return _NOTHING
    if call.first + 1 == call.end and (event := storages.events[call.first]) >= 0 and event not in storages.workspaces:
        return Pattern((sample.born(event),), (0,), (0,))
    events = [event for event in storages.events[call.first : call.end] if event not in storages.workspaces]
    return pattern_of(events, sample.born)


_NOTHING = Pattern((), (), ())


def _script_of(sample: Sample, fitted: Sequence[bool | None]) -> tuple[list[_Step], list[Born]]:
    """Return a trace as a script, and the storages of its slots.

    `fitted` is the result of `_is_fitted` for each call.
    """
    storages = sample.storages
    slots: dict[int, int] = {}
    born: list[Born] = []
    script: list[_Step] = []

    def slot_of(buffer: int) -> int:
        slots[buffer] = len(born)
        born.append(sample.born(buffer))
        return slots[buffer]

    def by_themselves(first: int, end: int) -> Iterator[_Step]:
        for event in storages.events[first:end]:
            if event < 0:
                yield _Step(closes=slots[~event])
            else:
                yield _Step(opens=(slot_of(event),), stream=storages.streams.own.get(event, 0))

    position = 0
    for number, (call, is_fitted) in enumerate(zip(sample.calls, fitted, strict=True)):
        if is_fitted is None:
            continue
        if position < call.first:
            script += by_themselves(position, call.first)
        position = call.end
        if call.first == call.end:
            script.append(_Step(call=number, fitted=is_fitted, stream=call.stream))
            continue
        events = storages.events[call.first : call.end]
        closed = {~event for event in events if event < 0}
        workspaces = tuple((n, slot_of(e)) for n, e in enumerate(events) if e in storages.workspaces)
        open_slots = tuple(slot_of(e) for e in events if e >= 0 and e not in closed and e not in storages.workspaces)
        script.append(_Step(open_slots, call=number, fitted=is_fitted, workspaces=workspaces, stream=call.stream))
    script += by_themselves(position, len(storages.events))
    return script, born


def _refuse_different_calls(first: Sample, other: Sample) -> None:
    here, there = size_name(first.point), size_name(other.point)
    alike: set[tuple[int, int]] = set()
    for made_here, made_there in zip(first.calls, other.calls, strict=False):
        mine, theirs = made_here.call, made_there.call
        if (id(mine), id(theirs)) in alike:
            continue
        if (mine.kernel, mine.form, len(mine.numbers)) != (theirs.kernel, theirs.form, len(theirs.numbers)):
            raise NotScalableError(
                f"at {there} {theirs.kernel.name} is called where at {here} {mine.kernel.name} is"
                if mine.kernel is not theirs.kernel
                else f"{mine.kernel.name} is called in another way at {there} than at {here}"
            )
        alike.add((id(mine), id(theirs)))
    if len(first.calls) != len(other.calls):
        raise NotScalableError(f"{len(first.calls)} kernels run at {here} and {len(other.calls)} at {there}")


def _what_differs(first: Sample, script: list[_Step], other: Sample, theirs: list[_Step]) -> str:
    pairs = enumerate(zip(script, theirs, strict=False))
    place = next((n for n, (a, b) in pairs if a != b), min(len(script), len(theirs)))
    calls = [step.call for step in script[:place] if step.call is not None]
    after = f" after {first.calls[calls[-1]].call.kernel.name}" if calls else ""
    return f"at {size_name(other.point)} tensors live otherwise than at {size_name(first.point)}{after}"

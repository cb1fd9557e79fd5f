"""What a program takes at any size of one dimension, from traces at three sizes.

Every whole number in the arguments of a kernel call is a polynomial of degree two at most in the size: a batch comes in
once, in contrastive losses and in attention written out twice. For another size the numbers are computed, each distinct
call is made alone, and what it takes is put where the traces have that call. Storages between the calls, and those of
calls that cannot be made alone or that depend on the values of tensors, are polynomials themselves.

Nothing here is a guess about other sizes that nobody checked: whoever asks compares `Scaled` with one more trace.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from memlint.scaling.calls import Born, Call, Pattern, can_be_made_alone, make_alone, pattern_of
from memlint.trace.records import Category, Doubt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memlint.trace.records import Trace

_FOR_INT64 = 2**57
_Made: TypeAlias = "dict[tuple[int, ...], Pattern | None]"


class NotScalableError(Exception):
    """Why the traces do not say what another size takes."""


class Sample(NamedTuple):
    """A trace at one size, and the calls in it."""

    size: int
    trace: Trace
    calls: tuple[Call, ...]


class Lives(NamedTuple):
    """Sizes of storages in order of birth, their events as in Trace, and doubts about sizes."""

    sizes: list[int]
    events: list[int]
    doubts: list[Doubt]


class _Step(NamedTuple):
    """What is the same at every size: storages open and close by themselves, or a call is made."""

    opens: tuple[int, ...] = ()
    """Slots: storages that exist at every size, numbered in order of birth."""
    closes: int | None = None
    call: int | None = None
    """Position in the calls; then `opens` are the storages that it leaves open."""
    fitted: bool = False
    """Whether the sizes of what it leaves open depend on more than its arguments."""
    workspaces: tuple[tuple[int, int], ...] = ()
    """Storages of libraries that open meanwhile: after how many events of the call, and the slot."""


@dataclass
class Scaled:
    """Three traces seen as one; make it with `of`, inside of `virtual_device` like everything that makes calls."""

    samples: tuple[Sample, ...]
    _script: list[_Step]
    _numbers: np.ndarray
    """(samples, all numbers of all calls)"""
    _spans: list[tuple[int, int]]
    """Where those of each call are."""
    _slots: np.ndarray
    """(samples, slots, 3): bytes and their bounds"""
    _made: list[_Made] = field(repr=False)
    """What each call was seen to do, by its numbers: one table for all calls of one form."""

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Scaled:
        """Put traces at three sizes in a row together.

        Raises NotScalableError where they are not one program at several sizes.
        """
        first, second, third = samples
        assert second.size - first.size == third.size - second.size == 1
        for sample in samples[1:]:
            _refuse_different_calls(first, sample)
        tables: defaultdict[object, _Made] = defaultdict(dict)
        made = [tables[call.kernel, call.form, call.placement] for call in first.calls]
        together = zip(made, *(sample.calls for sample in samples), strict=True)
        kinds = [_kind(calls, samples, table) for table, *calls in together]
        told = [_told(sample, kinds) for sample in samples]
        for sample, (script, _slots) in zip(samples[1:], told[1:], strict=True):
            if script != told[0][0]:
                raise NotScalableError(_what_differs(first, told[0][0], sample, script))
        numbers = np.array([[n for call in sample.calls for n in call.numbers] for sample in samples], dtype=np.int64)
        slots = np.array([born for _script, born in told], dtype=np.int64)
        spans = list(pairwise(accumulate((len(call.numbers) for call in first.calls), initial=0)))
        return cls(tuple(samples), told[0][0], numbers, spans, slots, made)

    def lives(self, size: int) -> Lives:
        """Say what is taken at `size`. Raises NotScalableError where no kernel can be called as it would be there."""
        steps = size - self.samples[0].size
        numbers = _at(self._numbers, steps).tolist()
        slots = [Born(*born) for born in _at(self._slots, steps).tolist()]
        lives = _Writer()
        for step in self._script:
            if step.call is None:
                for slot in step.opens:
                    lives.open(slot, slots[slot])
                if step.closes is not None:
                    lives.close(step.closes)
                continue
            call, (first, end) = self.samples[0].calls[step.call], self._spans[step.call]
            pattern = _alone(call, tuple(numbers[first:end]), self._made[step.call])
            if pattern is None or len(pattern.kept) != len(step.opens):
                raise NotScalableError(f"at size {size} {call.kernel.name} leaves another number of tensors behind")
            kept = dict(zip(pattern.kept, step.opens, strict=True))
            fitted = {slot: slots[slot] for slot in step.opens} if step.fitted else {}
            lives.call(step.call, pattern, kept, fitted, {place: (s, slots[s]) for place, s in step.workspaces})
        return lives.lives


def lives_of(trace: Trace) -> Lives:
    """Write a trace in the same way, to compare."""
    writer = _Writer()
    doubts = {doubt.buffer: doubt for doubt in trace.doubts}
    for event in trace.events:
        if event >= 0:
            writer.open(event, _born(trace, event, doubts))
        else:
            writer.close(~event)
    return writer.lives


class _Writer:
    """Numbers storages in order of birth, whatever they are called."""

    def __init__(self) -> None:
        self.lives = Lives([], [], [])
        self._ids: dict[object, int] = {}

    def open(self, name: object, born: Born) -> None:
        number = self._ids[name] = len(self.lives.sizes)
        self.lives.sizes.append(born.nbytes)
        self.lives.events.append(number)
        if not born.low == born.nbytes == born.high:
            self.lives.doubts.append(Doubt(number, born.low, born.high))

    def close(self, name: object) -> None:
        self.lives.events.append(~self._ids[name])

    def call(
        self,
        number: int,
        pattern: Pattern,
        kept: dict[int, int],
        fitted: dict[int, Born],
        workspaces: dict[int, tuple[int, Born]],
    ) -> None:
        last = len(pattern.events)
        for place, event in enumerate((*pattern.events, None)):
            for after, (slot, born) in workspaces.items():
                if after == place or (after > last and event is None):
                    self.open(slot, born)
            if event is None:
                return
            birth = event if event >= 0 else ~event
            name: object = kept.get(birth, (number, birth))
            if event >= 0:
                self.open(name, fitted.get(kept.get(birth, -1), pattern.births[birth]))
            else:
                self.close(name)


class _Kind(NamedTuple):
    alone: bool
    """Whether the call is made alone at other sizes; else its storages are polynomials."""
    fitted: bool


def _kind(calls: Sequence[Call], samples: Sequence[Sample], made_before: _Made) -> _Kind:
    """Find out by making a call alone where it is known what it took."""
    if not can_be_made_alone(calls[0]):
        return _Kind(alone=False, fitted=False)
    fitted = False
    for call, sample in zip(calls, samples, strict=True):
        made, traced = _alone(call, call.numbers, made_before), _traced(call, sample.trace)
        if made is None or traced is None or made.events != traced.events:
            return _Kind(alone=False, fitted=False)
        if made.births != traced.births:
            kept = set(made.kept)
            if any(a != b for n, (a, b) in enumerate(zip(made.births, traced.births, strict=True)) if n not in kept):
                return _Kind(alone=False, fitted=False)
            fitted = True
    return _Kind(alone=True, fitted=fitted)


def _alone(call: Call, numbers: tuple[int, ...], made_before: _Made) -> Pattern | None:
    if numbers not in made_before:
        try:
            made_before[numbers] = make_alone(call, numbers)
        except (RuntimeError, ValueError, TypeError, IndexError):
            made_before[numbers] = None  # what it was called with is more than its form and its numbers
    return made_before[numbers]


def _traced(call: Call, trace: Trace) -> Pattern | None:
    """What the call took in its trace, without workspaces."""
    events = [event for event in trace.events[call.first : call.end] if not _is_workspace(trace, event)]
    doubts = {doubt.buffer: doubt for doubt in trace.doubts}
    return pattern_of(events, {event: _born(trace, event, doubts) for event in events if event >= 0})


def _told(sample: Sample, kinds: Sequence[_Kind]) -> tuple[list[_Step], list[Born]]:
    """A trace as a script, and the storages of its slots."""
    trace = sample.trace
    doubts = {doubt.buffer: doubt for doubt in trace.doubts}
    slots: dict[int, int] = {}
    born: list[Born] = []
    script: list[_Step] = []

    def slot_of(buffer: int) -> int:
        slots[buffer] = len(born)
        born.append(_born(trace, buffer, doubts))
        return slots[buffer]

    def by_themselves(first: int, end: int) -> Iterator[_Step]:
        for event in trace.events[first:end]:
            yield _Step(opens=(slot_of(event),)) if event >= 0 else _Step(closes=slots[~event])

    position = 0
    for number, (call, kind) in enumerate(zip(sample.calls, kinds, strict=True)):
        if not kind.alone:
            continue
        script += by_themselves(position, call.first)
        position = call.end
        events = trace.events[call.first : call.end]
        closed = {~event for event in events if event < 0}
        workspaces = tuple((n, slot_of(e)) for n, e in enumerate(events) if _is_workspace(trace, e))
        kept = tuple(slot_of(e) for e in events if e >= 0 and e not in closed and not _is_workspace(trace, e))
        script.append(_Step(kept, call=number, fitted=kind.fitted, workspaces=workspaces))
    script += by_themselves(position, len(trace.events))
    return script, born


def _born(trace: Trace, buffer: int, doubts: dict[int, Doubt]) -> Born:
    nbytes = trace.buffers[buffer].nbytes
    doubt = doubts.get(buffer)
    return Born(nbytes, doubt.low, doubt.high) if doubt else Born(nbytes, nbytes, nbytes)


def _is_workspace(trace: Trace, event: int) -> bool:
    return event >= 0 and trace.buffers[event].category is Category.WORKSPACE and trace.buffers[event].op in _LIBRARIES


_LIBRARIES = ("cublas", "cublaslt")


def _at(known: np.ndarray, steps: int) -> np.ndarray:
    """Polynomials through what is known at three sizes in a row, so many steps from the first (Newton's formula)."""
    once, twice = known[1] - known[0], known[2] - 2 * known[1] + known[0]
    pairs = steps * (steps - 1) // 2
    if pairs * int(abs(np.stack([once, twice])).max(initial=0)) > _FOR_INT64:
        once, twice = once.astype(object), twice.astype(object)  # Python's numbers have no end
    return known[0] + once * steps + twice * pairs  # type: ignore[no-any-return]


def _refuse_different_calls(first: Sample, other: Sample) -> None:
    for mine, theirs in zip(first.calls, other.calls, strict=False):
        if (mine.kernel, mine.form, len(mine.numbers)) != (theirs.kernel, theirs.form, len(theirs.numbers)):
            raise NotScalableError(
                f"at size {other.size} {theirs.kernel.name} is called where at size {first.size} {mine.kernel.name} is"
                if mine.kernel is not theirs.kernel
                else f"{mine.kernel.name} is called in another way at size {other.size} than at size {first.size}"
            )
    if len(first.calls) != len(other.calls):
        raise NotScalableError(
            f"{len(first.calls)} kernels run at size {first.size} and {len(other.calls)} at size {other.size}"
        )


def _what_differs(first: Sample, script: list[_Step], other: Sample, theirs: list[_Step]) -> str:
    pairs = enumerate(zip(script, theirs, strict=False))
    place = next((n for n, (a, b) in pairs if a != b), min(len(script), len(theirs)))
    calls = [step.call for step in script[:place] if step.call is not None]
    after = f" after {first.calls[calls[-1]].kernel.name}" if calls else ""
    return f"at size {other.size} tensors live otherwise than at size {first.size}{after}"

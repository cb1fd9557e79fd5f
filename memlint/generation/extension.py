"""The events of a whole generation from those of its first rounds, held against a trace of its last ones.

Two traces are made. The first has the prefill and a few rounds of the generation as it is asked for. The second begins
with more tokens, as many as are left out, and so has the last rounds: caches do not tell whether tokens came one by
one. Three rounds of the first are a program at three sizes (`memlint.scaling`), which gives every round between. Where
kernels align rows to some tokens, every second, fourth or eighth round is alike.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from memlint.base.garbage import uncollected
from memlint.cuda.session import virtual_device
from memlint.generation.pieces import BEGIN, Pieces
from memlint.generation.rounds import Birth, Rounds
from memlint.generation.shown import shown
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.decoding import last_generation
from memlint.memory.records import Doubt, Trace, Whole
from memlint.scaling.polynomials import NUM_SIZES
from memlint.scaling.recorded_calls import recorded
from memlint.scaling.scaled import Lives, NotScalableError
from memlint.targets.workload import BATCH, InputSpec, Workload
from memlint.tracing.recorder import Program, trace_program
from memlint.tracing.workload_errors import workload_errors

MOST_ROUNDS = 32
"""New tokens up to which every round is traced."""
_PERIODS = (1, 2, 4, 8)
"""Rounds after which they are alike again: rows of masks are aligned to 16 bytes."""
_WRITTEN = "decoder_input_ids"
"""The argument with which `generate` of transformers takes what a decoder has written already."""


class NotExtendableError(Exception):
    """The rounds of a generation are not alike; the message says in what."""


@dataclass(frozen=True)
class Later:
    """A trace of the last rounds that is made once it is asked for."""

    result: Callable[[], Rounds]

    def stop(self) -> None:
        """Nobody will ask for it; it has not begun."""


class Begun(Protocol):
    """A trace of the last rounds, made later or meanwhile."""

    @property
    def result(self) -> Callable[[], Rounds]:
        """Wait for it."""

    def stop(self) -> None:
        """Nobody will ask for the result."""


@dataclass
class Extension:
    """The generation of one Workload, of which `program` builds the program at any of its sizes."""

    workload: Workload
    program: Callable[[Workload], Any]
    settings: AllocatorSettings
    begin: Callable[[Callable[[], Rounds]], Begun] = Later
    """Begins with a trace of the last rounds while the first ones are traced."""
    is_of_decoder: bool = False
    """True of an encoder's decoder, which begins without a prompt."""

    def trace(self) -> Trace:
        """Trace the first rounds and the last, and give the first with the events of all.

        Raises NotExtendableError; WorkloadError and TraceError as the program does.
        """
        try:
            with uncollected():
                pieces, last = self._traces()
                with virtual_device(self.workload.device):
                    self._hold_against(pieces, last)
                    whole = _assembled(pieces, last, self._num_rounds)
                    return replace(shown(pieces, self._num_rounds), whole=whole)
        except NotScalableError as error:
            raise NotExtendableError(str(error)) from error

    @property
    def _num_rounds(self) -> int:
        return self.workload.dimensions["new_tokens"]

    def _traces(self) -> tuple[Pieces, Rounds]:
        """Trace as many of the first rounds as show after how many they are alike, and as many of the last."""
        for periods in (_PERIODS[:1], _PERIODS[1:]):
            needed = BEGIN + NUM_SIZES * periods[-1] + 1  # the last one is cut short
            if needed > self._num_rounds:
                break
            begun = self.begin(partial(self._last, periods[-1] + BEGIN + 1))
            try:
                pieces = self._pieces(needed, periods)
            except BaseException:
                begun.stop()
                raise
            if pieces is not None:
                return pieces, begun.result()
            begun.stop()
        raise NotExtendableError("the first tokens are not decoded alike")

    def _pieces(self, needed: int, periods: Sequence[int]) -> Pieces | None:
        """Learn from the first `needed` rounds; None if they are alike after none of these periods."""
        first = self._traced(self.workload, needed)
        if len(first) != needed:
            raise NotExtendableError(f"it ends after {len(first)} tokens")
        for period in periods:
            with suppress(NotScalableError), virtual_device(self.workload.device):
                return Pieces.learned(first, period)
        return None

    def _last(self, count: int) -> Rounds:
        """Trace the last `count` rounds, which begin with a longer prompt, or with what a decoder has written."""
        was_of_decoder = self.is_of_decoder
        last = self._traced(self._of_last(count), None)
        if self.is_of_decoder != was_of_decoder:  # nothing was traced before
            last = self._traced(self._of_last(count), None)
        if len(last) != count:
            raise NotExtendableError(f"{len(last)} tokens are generated where {count} were asked for")
        return replace(last, calls=())  # nothing is learned from them

    def _of_last(self, count: int) -> Workload:
        workload, sizes = self.workload, self.workload.dimensions
        left_out = sizes["new_tokens"] - count
        longer = {**sizes, "new_tokens": count}
        if self.is_of_decoder:  # `generate` writes the first token itself
            written = InputSpec(_WRITTEN, (BATCH, left_out), "int64", low=1)
            workload = replace(workload, inputs=(*(workload.inputs or ()), written))
        else:
            longer["prompt"] += left_out
        return replace(workload, dimensions=longer)

    def _traced(self, workload: Workload, most_rounds: int | None) -> Rounds:
        program: Program = self.program(workload)
        with workload_errors(), recorded() as calls:
            trace = trace_program(program, workload.device, self.settings, num_steps=1, most_rounds=most_rounds).trace
        config = getattr(getattr(program, "model", None), "config", None)
        self.is_of_decoder = bool(getattr(config, "is_encoder_decoder", False))
        if not trace.rounds:
            raise NotExtendableError("no call of a model was seen in it")
        return Rounds.of(trace, tuple(calls))

    def _hold_against(self, pieces: Pieces, last: Rounds) -> None:
        """Raise NotExtendableError unless the last rounds are as the first ones lead to."""
        before = self._num_rounds - len(last)
        for own in range(len(last) - 2, len(last) - 2 - pieces.period, -1):
            if last.origins(own) != pieces.origins(before + own):
                raise NotExtendableError("the last tokens are decoded otherwise than the first ones")
            if not pieces.predicts(last.sample(own, before + own)):
                raise NotExtendableError("the last tokens take other memory than the first ones lead to")


def extended(trace: Trace, num_rounds: int) -> Trace:
    """Give the first rounds of a Trace's last generation the events of all, up to the last token.

    As many rounds as were traced beyond those that are learned from are held against them. Raises NotExtendableError.
    """
    rounds = last_generation(trace)
    first = Rounds.of(replace(trace, rounds=rounds), ()).without_late_frees(BEGIN)
    try:
        pieces = _pieces_of(first)
        assembly = _Assembly(pieces)
        for number in range(BEGIN, num_rounds):
            assembly.add(number, pieces.at(number), pieces.origins(number))
        return replace(shown(pieces, num_rounds), whole=assembly.whole())
    except NotScalableError as error:
        raise NotExtendableError(str(error)) from error


def _pieces_of(first: Rounds) -> Pieces:
    """Learn from rounds that are alike, and that lead to the others; the last one may be cut short."""
    for period in _PERIODS:
        learned = BEGIN + NUM_SIZES * period
        further = range(learned, len(first) - 1)
        if len(further) < period:
            break
        with suppress(NotScalableError):
            pieces = Pieces.learned(first, period)
            if all(
                first.origins(each) == pieces.origins(each) and pieces.predicts(first.sample(each, each))
                for each in further
            ):
                return pieces
    raise NotExtendableError("the first tokens are not decoded alike")


def _assembled(pieces: Pieces, last: Rounds, num_rounds: int) -> Whole:
    """Give the events of all rounds: traced, computed, and of the last one with the end of the generation."""
    assembly = _Assembly(pieces)
    for number in range(BEGIN, num_rounds - 1):
        assembly.add(number, pieces.at(number), pieces.origins(number))
    assembly.end(num_rounds - 1, last)
    return assembly.whole()


class _Assembly:
    """Joins rounds, with storages numbered as they open: what one carries is what the rounds before have opened."""

    def __init__(self, pieces: Pieces) -> None:
        first, start = pieces.first, pieces.first.bounds[BEGIN]
        events, buffers = first.trace.events[:start], first.trace.buffers
        names = {buffer: number for number, buffer in enumerate(event for event in events if event >= 0)}
        renamed = [names[event] if event >= 0 else ~names[~event] for event in events]
        self.events: list[np.ndarray] = [np.array(renamed, np.int64)]
        self.sizes: list[np.ndarray] = [np.array([buffers[buffer].nbytes for buffer in names], np.int64)]
        doubts = (each for each in first.trace.doubts if each.buffer in names)
        self.doubts = [Doubt(names[each.buffer], each.low, each.high) for each in doubts]
        self._opened = len(names)
        self._bases: dict[int, int] = {}
        self._left: dict[int, np.ndarray] = {}
        """Storages that each round has left open, in the order in which they opened."""
        self._before = {first.births[b]: number for b, number in names.items() if b in first.births}
        learned = first.bounds[BEGIN + NUM_SIZES * pieces.period]
        closed = {~event for event in first.trace.events[:learned] if event < 0}
        self._lasting: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        """Storages open after all rounds that were learned, by the place where they open."""
        for buffer, number in names.items():
            if buffer not in closed:  # which outlives its round
                self._lasting[_place(first, buffer)].append(number)

    def add(self, number: int, lives: Lives, origins: Sequence[Birth]) -> None:
        """Append a round."""
        carried = np.array([self._number(number - age, place) for age, place in origins], np.int64)
        count = len(carried)
        names = np.concatenate([carried, np.arange(self._opened, self._opened + len(lives.sizes) - count)])
        if [self._size(number) for number in carried] != list(lives.sizes[:count]):
            raise NotExtendableError("a token's round finds other storages than the one before has left")
        own = lives.events[count:]
        is_left = np.ones(len(names), bool)
        is_left[~own[own < 0]] = is_left[:count] = False
        self._left[number] = names[is_left]
        named = names[np.where(own >= 0, own, ~own)]
        self.events.append(np.where(own >= 0, named, ~named))
        doubts = (each for each in lives.doubts if each.buffer >= count)
        self.doubts += (Doubt(int(names[each.buffer]), each.low, each.high) for each in doubts)
        self._append(number, np.asarray(lives.sizes[count:], np.int64))

    def end(self, number: int, last: Rounds) -> None:
        """Append the last round as it was traced, with the end of the generation."""
        own = len(last) - 1
        opened = last.opened(own)
        names = {buffer: self._opened + place for place, buffer in enumerate(opened)}
        only_here = self._lasting_only_here(last)
        for buffer in last.carried(own):
            alike, birth = self._lasting[_place(last, buffer)], last.births[buffer]
            same = self._before.get(birth, -1)
            if birth.round <= 0 and not alike:
                alike = only_here[last.trace.buffers[buffer].dtype]
            if alike:
                names[buffer] = alike.pop(alike.index(same) if same in alike else 0)
            else:
                names[buffer] = self._number(number - (own - birth.round), birth.place)
        events = last.trace.events[last.bounds[own] :]
        self.events.append(np.array([names[e] if e >= 0 else ~names[~e] for e in events], np.int64))
        doubts = {each.buffer: each for each in last.trace.doubts}
        self.doubts += (Doubt(names[b], doubts[b].low, doubts[b].high) for b in opened if b in doubts)
        self._append(number, np.array([last.trace.buffers[buffer].nbytes for buffer in opened], np.int64))

    def _lasting_only_here(self, last: Rounds) -> defaultdict[str, list[int]]:
        """Return by dtype storages up to the prefill that the last rounds lack, such as a decoder's first token.

        Those begin with what it has written, which a program keeps instead.
        """
        places = {_place(last, buffer) for buffer, birth in last.births.items() if birth.round <= 0}
        only_here: defaultdict[str, list[int]] = defaultdict(list)
        for place, numbers in self._lasting.items():
            if place not in places and place[0] <= 0:
                only_here[place[-1]] += numbers
        return only_here

    def whole(self) -> Whole:
        """Return all of it."""
        sizes, events = array("q"), array("q")
        sizes.frombytes(np.concatenate(self.sizes).tobytes())
        events.frombytes(np.concatenate(self.events).tobytes())
        return Whole(sizes, events, tuple(self.doubts))

    def _append(self, number: int, sizes: np.ndarray) -> None:
        self._bases[number] = self._opened
        self.sizes.append(sizes)
        self._opened += len(sizes)

    def _number(self, number: int, place: int) -> int:
        try:
            return int(self._left[number][place]) if number in self._left else self._before[Birth(number, place)]
        except (KeyError, IndexError):
            raise NotExtendableError("the end frees what nothing here has opened") from None

    def _size(self, storage: int) -> int:
        for sizes, base in zip(reversed(self.sizes[1:]), reversed(self._bases.values()), strict=True):
            if storage >= base:
                return int(sizes[storage - base])
        return int(self.sizes[0][storage])


def _place(rounds: Rounds, buffer: int) -> tuple[Any, ...]:
    """Return what tells storages apart that outlive rounds, whatever the number of kernels before them."""
    record = rounds.trace.buffers[buffer]
    return rounds.births[buffer].round, record.op, record.frame, record.module, record.dtype

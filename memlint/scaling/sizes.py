"""Peaks of one Workload at many sizes, from traces at a few."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from memlint.base.errors import WorkloadError
from memlint.base.garbage import uncollected
from memlint.base.units import LARGEST_SIZE
from memlint.cuda.session import virtual_device
from memlint.memory.allocator.reference import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.estimate import SizePeaks, most_device, peaks
from memlint.scaling.polynomials import Grid, Point, size_name
from memlint.scaling.recorded_calls import TooLongError, recorded
from memlint.scaling.scaled import Lives, NotScalableError, Sample, Scaled, lives_of
from memlint.scaling.search import Largest, largest_within
from memlint.targets.workload import Workload
from memlint.tracing.recorder import Program
from memlint.tracing.workload_errors import storages_of_workload

BATCHES = range(2, 5)
"""Sizes that say how everything grows with the batch. A batch of one may take other kernels: it is always traced."""
_CHECK = 5
"""Against which they are checked where no larger batch is asked for."""
_NEIGHBOURS = 32
"""Sizes below the largest that have to fit too: where blocks are placed otherwise, a smaller one may take more."""


class FixedInputsError(WorkloadError):
    """There is nothing to compare."""


@dataclass
class Sizes:
    """Traces of one Workload at several batch sizes, and at several sizes of `dimensions`; points are in that order."""

    workload: Workload
    program: Callable[[Workload], Program]
    """Sets the program of a Workload up."""
    device: Device
    dimensions: tuple[str, ...] = ()
    axes: tuple[range, ...] = ()
    """For each of these the sizes that say how everything grows with it."""
    most_calls: int | None = None
    """Kernels in a trace up to which it is worth several more; None for any number."""
    lives: dict[Point, Lives] = field(default_factory=dict)
    """Of the points that were traced."""
    scaled: Scaled | None = None
    _peaks: dict[Point, SizePeaks] = field(default_factory=dict)
    _most: dict[Point, int | None] = field(default_factory=dict)
    """Bounds of what the device shows, None where no step can be taken."""
    _rejected: dict[Point, WorkloadError] = field(default_factory=dict)
    """What the program raises."""
    _ceilings: dict[Point, int] = field(default_factory=dict)
    """The largest batch that a program takes which rejects larger ones, by the sizes of the dimensions."""

    @property
    def num_computed(self) -> int:
        """At how many points somebody looked that were not traced."""
        return len({*self._peaks, *self._most} - self.lives.keys())

    def learn(self, batches: Sequence[int], sizes: Sequence[Sequence[int]] = ()) -> str | None:
        """Trace a few points, and hold what they say against one more; give the reason if it cannot be relied on.

        `batches`, and for each dimension `sizes`, are those that will be asked for.
        """
        grid = Grid((BATCHES, *self.axes))
        try:
            samples = [self._sample(point) for point in grid.points]
            self._refuse_fixed_inputs(grid.points)
            with uncollected(), virtual_device(self.device):
                self.scaled = Scaled.of(grid, samples)
            # Where there is one largest batch, and it is beyond those asked for, its trace serves for both.
            largest = [] if sizes else [self.search(batches).number]
            tried = sorted({batch for batch in (*batches, *largest) if batch > _CHECK} | {_CHECK}, reverse=True)
            self._check([(batch, *map(max, sizes)) for batch in tried])
        except (FixedInputsError, TooLongError):
            raise
        except (WorkloadError, NotScalableError) as error:
            self._distrust()
            return str(error)
        return None

    def follow(self, other: "Sizes", batches: Sequence[int]) -> bool:
        """Take from the same program on another number of ranks how it grows with the batch; say whether that is so.

        Two traces are made: of the largest batch known there for what other shards take, and of that here for proof.
        """
        if other.scaled is None:
            return False
        point = max(other.lives)
        try:
            own = self._traced(point)
            with uncollected(), virtual_device(self.device):
                self.scaled = other.scaled.resharded(point, own)
            if self.scaled is None:
                return False
            proof = (self.search(batches).number or batches[0],)
            if proof == point:  # which proves nothing
                proof = (max(1, point[0] // 2),)
            if self._traced(proof) == self._computed(proof):
                return True
        except (WorkloadError, NotScalableError):
            pass
        self._distrust()
        return False

    def at(self, point: Point) -> SizePeaks:
        """The peaks at one point."""
        if point not in self._peaks:
            try:
                lives, evidence = self._lives(point)
            except WorkloadError as error:
                self._peaks[point] = SizePeaks(point[0], None, error=error.message)
            else:
                most = peaks(lives.sizes, lives.events, lives.doubts, self.device, self._settings, lives.streams)
                self._peaks[point] = SizePeaks(point[0], most, evidence)
        return self._peaks[point]

    def largest(self, batches: Sequence[int], rest: Point = ()) -> tuple[SizePeaks | None, bool]:
        """The largest batch up to which all surely fit, traced, and whether the next is known not to.

        `rest` are the sizes of the dimensions. Where nothing can be computed, larger ones than the largest of `batches`
        are not tried.
        """
        largest = self.search(batches, rest)
        try:
            if largest.number and not self._bears_out((largest.number, *rest)):
                largest = self.search(batches, rest)
        except WorkloadError:  # the program takes no batch as large: which ones it does, only traces can say
            largest = self.search(batches, rest, below=largest.number)
            self._ceilings[rest] = largest.number
        return (self.at((largest.number, *rest)) if largest.number else None), largest.is_limit

    def search(self, batches: Sequence[int], rest: Point = (), *, below: int | None = None) -> Largest:
        """The same, from what is known without another trace; with `below` from traces alone, of less than that."""
        if below is not None:
            self._forget(lambda point: point[1:] == rest)
            batches = [batch for batch in batches if batch < below]

        def most(batch: int) -> int | None:
            return self._most_device((batch, *rest), is_traced=below is not None)

        limit = self.device.total_nbytes

        def is_within(batch: int) -> bool:
            value = most(batch)
            return value is not None and value <= limit

        # From a batch asked for, else from one that was traced.
        known: list[int] = []
        if self.scaled is not None or below is not None:
            batches_traced = (batch for batch, *sizes in self.lives if tuple(sizes) == rest)
            known = sorted((batch for batch in batches_traced if below is None or batch < below), reverse=True)
        low = max(itertools.takewhile(is_within, sorted(batches)), default=0) or next(filter(is_within, known), 1)
        high = min((batch for batch in batches if batch > low), default=below)
        at_most, neighbours = (low, 0) if self.scaled is None else (LARGEST_SIZE, _NEIGHBOURS)
        return largest_within(limit, most, low, high, at_most, neighbours=neighbours)

    def _refuse_fixed_inputs(self, points: Sequence[Point]) -> None:
        first = points[0]
        for axis, name in enumerate(("batch", *self.dimensions)):
            line = [
                point for point in points if (*point[:axis], *point[axis + 1 :]) == first[:axis] + first[axis + 1 :]
            ]
            if all(self.lives[point] == self.lives[first] for point in line):
                raise FixedInputsError(
                    f"what {self.workload.name} takes does not depend on the {name} size",
                    f'Let its inputs depend on it: def memlint_workload({name}), or "{name}" in their shapes.',
                )

    def _check(self, points: Sequence[Point]) -> None:
        """Hold the first of these points that the program takes against a trace of it."""
        assert self.scaled is not None
        for number, point in enumerate(points):
            try:
                trace = self._traced(point)
            except WorkloadError:
                if number + 1 == len(points):
                    raise
                continue
            with virtual_device(self.device):
                if self.scaled.lives(point) != trace:
                    self.scaled.settle(point)
                    self._forget()
                    if self.scaled.lives(point) != trace:
                        raise NotScalableError(f"a trace at {size_name(point)} is not what follows from smaller ones")
            return

    @property
    def _settings(self) -> AllocatorSettings:
        return AllocatorSettings.parse(self.workload.allocator)

    def _lives(self, point: Point) -> tuple[Lives, Literal["traced", "computed"]]:
        if point not in self.lives and point not in self._rejected and point[0] >= BATCHES.start:
            computed = self._computed(point)
            if computed is not None:
                return computed, "computed"
        return self._traced(point), "traced"

    def _computed(self, point: Point) -> Lives | None:
        if self.scaled is None or point[0] > self._ceilings.get(point[1:], point[0]):
            return None
        try:
            with uncollected(), virtual_device(self.device, for_program=False):
                return self.scaled.lives(point)
        except NotScalableError:
            return None

    def _most_device(self, point: Point, *, is_traced: bool) -> int | None:
        if point not in self._most:
            known = self._peaks.get(point)
            if known is not None and (known.evidence == "traced" or not is_traced):
                self._most[point] = known.peaks.device.high if known.peaks is not None else None
            else:
                try:
                    lives = self._traced(point) if is_traced else self._lives(point)[0]
                except WorkloadError:
                    self._most[point] = None
                else:
                    taken = lives.sizes, lives.events, lives.doubts
                    self._most[point] = most_device(*taken, self.device, self._settings, lives.streams)
        return self._most[point]

    def _bears_out(self, point: Point) -> bool:
        """Whether what was computed is that of a trace; if not, nothing that was computed is kept.

        Raises WorkloadError where the program does not take this point.
        """
        if point not in self._rejected and self.at(point).evidence == "traced":
            return True
        if self._traced(point) == self._computed(point):
            self._peaks[point] = self._peaks[point]._replace(evidence="traced")
            return True
        self._distrust()
        return False

    def _distrust(self) -> None:
        """Compute nothing from now on, and keep nothing that was computed."""
        self.scaled = None
        self._forget()

    def _forget(self, is_wrong: Callable[[Point], bool] = lambda _point: True) -> None:
        """Keep of what was computed only what is not wrong."""
        wrong = {point for point in {*self._peaks, *self._most} if is_wrong(point) and point not in self.lives}
        self._peaks = {p: known for p, known in self._peaks.items() if p not in wrong or known.evidence == "traced"}
        self._most = {point: most for point, most in self._most.items() if point not in wrong}

    def _traced(self, point: Point) -> Lives:
        if point in self._rejected:
            raise self._rejected[point]
        if point not in self.lives:
            try:
                self.lives[point] = lives_of(storages_of_workload(self._program(point), self.device, self._settings))
            except WorkloadError as error:
                self._rejected[point] = error
                raise
        return self.lives[point]

    def _sample(self, point: Point) -> Sample:
        with recorded(self.most_calls) as calls:
            storages = storages_of_workload(self._program(point), self.device, self._settings)
        self.lives[point] = lives_of(storages)
        return Sample(point, storages, tuple(calls))

    def _program(self, point: Point) -> Program:
        batch, *sizes = point
        dimensions = {**self.workload.dimensions, **dict(zip(self.dimensions, sizes, strict=True))}
        return self.program(replace(self.workload, batch=batch, dimensions=dimensions))

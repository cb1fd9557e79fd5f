"""Peaks of one Workload at many sizes, from traces at a few."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from memlint.accelerator.lazy_imports import Compilation
from memlint.base.errors import WorkloadError
from memlint.base.garbage import uncollected
from memlint.base.units import LARGEST_SIZE
from memlint.cuda.session import virtual_device
from memlint.memory.allocator.reference import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.estimate import SizePeaks, most_device, peaks
from memlint.scaling.polynomials import NUM_SIZES, Grid, Point, size_name
from memlint.scaling.recorded_calls import TooLongError, recorded
from memlint.scaling.scaled import Lives, NotScalableError, Sample, Scaled, lives_of
from memlint.scaling.search import Largest, largest_within
from memlint.targets.workload import Workload
from memlint.tracing.recorder import Program
from memlint.tracing.workload_errors import storages_of_workload

BATCHES = range(2, 5)
"""Batch sizes whose traces determine the growth with the batch. A batch of one may take other kernels: it is always
traced."""
_CHECK = 5
"""Batch size of the checking trace if no larger batch is requested."""
_NEIGHBOURS = 32
"""Sizes below the largest that have to fit too: blocks may be placed worse at a smaller size."""


_COMPILED = "code is compiled for each size on its own"
"""Inductor fuses by size, splits sums by size, and writes into what has died where that is as large."""


class FixedInputsError(WorkloadError):
    """The memory does not depend on the size: nothing can be compared."""


@dataclass
class Sizes:
    """Traces of one Workload at several batch sizes, and several sizes of `dimensions`; points have this order."""

    workload: Workload
    program: Callable[[Workload], Program]
    """Builds the program of a Workload."""
    device: Device
    dimensions: tuple[str, ...] = ()
    axes: tuple[range, ...] = ()
    """For each dimension the sizes whose traces determine the growth with it."""
    most_calls: int | None = None
    """Largest number of kernels in a trace for which several more traces are worth it; None for any number."""
    line_first: bool = False
    """True to begin with two samples along the batch, from the first that is known on: a third one only if not every
    number is linear."""
    run: Callable[[Workload], Lives] | None = None
    """Gives the storages of a Workload that is not learned from smaller sizes, as a long generation, which is learned
    from a few of its tokens at each size; None for one that is."""
    lives: dict[Point, Lives] = field(default_factory=dict)
    """Storages at the points that were traced, by this or before."""
    samples: dict[Point, Sample] = field(default_factory=dict)
    """Traces with their calls, by this or before."""
    scaled: Scaled | None = None
    _peaks: dict[Point, SizePeaks] = field(default_factory=dict)
    _most: dict[Point, int | None] = field(default_factory=dict)
    """Upper bounds of the bytes on the device; None where no step can run."""
    _rejected: dict[Point, WorkloadError] = field(default_factory=dict)
    """Errors that the program raised."""
    _ceilings: dict[Point, int] = field(default_factory=dict)
    """Largest batch of a program that rejects larger ones, by the sizes of the dimensions."""

    def learn(self, batches: Sequence[int], sizes: Sequence[Sequence[int]] = ()) -> str | None:
        """Trace a few points and compare their prediction with one more trace.

        Return the reason if it cannot be relied on. `batches`, and for each dimension `sizes`, are those that will be
        requested.
        """
        if self.run is not None:
            return "each size was traced, by its first and last tokens"
        if self._is_compiled:
            return _COMPILED
        grids = [Grid((BATCHES, *self.axes))]
        if self.line_first and not sizes:
            first = min((batch for (batch,) in self.samples if BATCHES[0] <= batch < LARGEST_SIZE), default=BATCHES[0])
            grids.insert(0, Grid((range(first, first + 2),)))
        reason = ""
        for grid in grids:
            try:
                self._learn(grid, batches, sizes)
            except TooLongError:
                raise
            except (WorkloadError, NotScalableError) as error:
                if isinstance(error, FixedInputsError) and grid is grids[-1]:
                    raise
                self._distrust()
                reason = str(error)
            else:
                return None
        return reason

    def _learn(self, grid: Grid, batches: Sequence[int], sizes: Sequence[Sequence[int]]) -> None:
        known = [point for point in self.lives if point > grid.points[-1]]
        samples: list[Sample] = []
        for point in grid.points:
            samples.append(self._sample(point))
            if self._is_compiled:
                raise NotScalableError(_COMPILED)
        self._refuse_fixed_inputs(grid.points)
        with uncollected(), virtual_device(self.device):
            self.scaled = Scaled.of(grid, samples)
        if known and len(grid.points) < NUM_SIZES:  # a line is soon found to be none
            self._check([max(known)])
        # The trace of the largest batch serves for both; larger ones that are requested do not fit, and need none.
        largest = 0 if sizes else self.search(batches).number
        most = largest if largest > _CHECK else max(batches)
        tried = sorted({batch for batch in (*batches, largest) if _CHECK < batch <= most} | {_CHECK}, reverse=True)
        points = [(batch, *map(max, sizes)) for batch in tried]
        self._check([point for point in points if point not in grid.points])

    def follow(self, other: "Sizes", batches: Sequence[int]) -> bool:
        """Take the growth with the batch from the same program on another number of ranks; return True if it agrees.

        Two traces are made: one of the largest batch known there, which gives the sizes of the shards here, and one of
        the largest batch here as a check.
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
            if proof == point:  # the same point would check nothing
                proof = (max(1, point[0] // 2),)
            if self._traced(proof) == self._computed(proof):
                return True
        except (WorkloadError, NotScalableError):
            pass
        self._distrust()
        return False

    def at(self, point: Point) -> SizePeaks:
        """Return the peaks at one point."""
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
        """Return the largest batch up to which all certainly fit, traced, and True if the next is known not to fit.

        `rest` are the sizes of the dimensions. If nothing can be computed, batches larger than the largest of `batches`
        are not tried.
        """
        largest = self.search(batches, rest)
        try:
            if largest.number and not self._is_confirmed((largest.number, *rest)):
                largest = self.search(batches, rest)
        except WorkloadError:  # the program rejects so large a batch; which ones it takes, only traces show
            largest = self.search(batches, rest, below=largest.number)
            self._ceilings[rest] = largest.number
        return (self.at((largest.number, *rest)) if largest.number else None), largest.is_limit

    def search(self, batches: Sequence[int], rest: Point = (), *, below: int | None = None) -> Largest:
        """Search the largest batch without another trace; with `below`, from traces alone and smaller than that."""
        if below is not None:
            self._forget(lambda point: point[1:] == rest)
            batches = [batch for batch in batches if batch < below]

        def most(batch: int) -> int | None:
            return self._most_device((batch, *rest), is_traced=below is not None)

        limit = self.device.total_nbytes

        def is_within(batch: int) -> bool:
            value = most(batch)
            return value is not None and value <= limit

        # From a requested batch, else from one that was traced.
        known: list[int] = []
        if self.scaled is not None or below is not None:
            batches_traced = (batch for batch, *sizes in self.lives if tuple(sizes) == rest)
            known = sorted((batch for batch in batches_traced if below is None or batch < below), reverse=True)
        low = max(itertools.takewhile(is_within, sorted(batches)), default=0) or next(filter(is_within, known), 1)
        high = min((batch for batch in batches if batch > low), default=below)
        at_most, neighbours = (low, 0) if self.scaled is None else (LARGEST_SIZE, _NEIGHBOURS)
        if self.run is not None or (self._is_compiled and low > 0 and self._grows((low, *rest))):
            at_most = LARGEST_SIZE
        is_costly = self._is_compiled or self.run is not None
        return largest_within(limit, most, low, high, at_most, neighbours=neighbours, is_costly=is_costly)

    def _grows(self, point: Point) -> bool:
        """Return True if a trace of twice the batch differs: with inputs of a fixed size none does."""
        batch, *sizes = point
        try:
            return self._traced(point) != self._traced((2 * batch, *sizes))
        except WorkloadError:
            return False

    def _refuse_fixed_inputs(self, points: Sequence[Point]) -> None:
        first = points[0]
        for axis, name in enumerate(("batch", *self.dimensions)):
            line = [
                point for point in points if (*point[:axis], *point[axis + 1 :]) == first[:axis] + first[axis + 1 :]
            ]
            if all(self.lives[point] == self.lives[first] for point in line):
                raise FixedInputsError(
                    f"the memory of {self.workload.name} does not depend on the {name} size",
                    f'Let its inputs depend on it: def memlint_workload({name}), or "{name}" in their shapes.',
                )

    def _check(self, points: Sequence[Point]) -> None:
        """Compare the prediction at the first of these points that the program accepts with a trace of it."""
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
                        raise NotScalableError(f"a trace at {size_name(point)} differs from its prediction")
            return

    @property
    def _is_compiled(self) -> bool:
        """True if code of the program was compiled."""
        return Compilation.is_simulated(self.workload.compile)

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

    def _is_confirmed(self, point: Point) -> bool:
        """Return True if a trace confirms the computed storages; if not, everything computed is dropped.

        Raises WorkloadError if the program rejects this point.
        """
        if point not in self._rejected and self.at(point).evidence == "traced":
            return True
        if self._traced(point) == self._computed(point):
            self._peaks[point] = self._peaks[point]._replace(evidence="traced")
            return True
        self._distrust()
        return False

    def _distrust(self) -> None:
        """Drop everything computed, and compute nothing from now on."""
        self.scaled = None
        self._forget()

    def _forget(self, is_wrong: Callable[[Point], bool] = lambda _point: True) -> None:
        """Drop computed results that are wrong."""
        wrong = {point for point in {*self._peaks, *self._most} if is_wrong(point) and point not in self.lives}
        self._peaks = {p: known for p, known in self._peaks.items() if p not in wrong or known.evidence == "traced"}
        self._most = {point: most for point, most in self._most.items() if point not in wrong}

    def _traced(self, point: Point) -> Lives:
        if point in self._rejected:
            raise self._rejected[point]
        if point not in self.lives:
            try:
                if self.run is not None:
                    self.lives[point] = self.run(self._workload(point))
                else:
                    storages = storages_of_workload(self._program(point), self.device, self._settings)
                    self.lives[point] = lives_of(storages)
            except WorkloadError as error:
                self._rejected[point] = error
                raise
        return self.lives[point]

    def _sample(self, point: Point) -> Sample:
        if point not in self.samples:
            with recorded(self.most_calls) as calls:
                storages = storages_of_workload(self._program(point), self.device, self._settings)
            self.lives[point] = lives_of(storages)
            self.samples[point] = Sample(point, storages, tuple(calls))
        return self.samples[point]

    def _program(self, point: Point) -> Program:
        return self.program(self._workload(point))

    def _workload(self, point: Point) -> Workload:
        batch, *sizes = point
        dimensions = {**self.workload.dimensions, **dict(zip(self.dimensions, sizes, strict=True))}
        return replace(self.workload, batch=batch, dimensions=dimensions)

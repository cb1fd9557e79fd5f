"""What happens in the child process of `memlint fit`: the largest batch as it is, and with changes made together."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from memlint.base.errors import MemlintError, UsageError
from memlint.base.units import LARGEST_SIZE
from memlint.commands.analyse.analysis import Analysis
from memlint.commands.analyse.child import find_requested
from memlint.commands.sweep.child import answered
from memlint.commands.sweep.tables import BatchParts, Fit, Way, row_of, subject
from memlint.cuda.allocator.reference import AllocatorSettings
from memlint.distributed.communicators import beside
from memlint.memory.estimate import peaks
from memlint.report.model import Interval
from memlint.scaling.scaled import lives_of
from memlint.scaling.sizes import Sizes
from memlint.tracing.records import Trace
from memlint.tracing.workload_errors import storages_of_workload, trace_of_workload
from memlint.whatif.change import Change, ChangedProgram, Effect, Names, NotApplicableError
from memlint.whatif.changes import AccumulationSteps
from memlint.whatif.plan import Planner
from memlint.whatif.simulation import WhatIf
from memlint.worker.protocol import Request, Result
from memlint.workloads.build.construct import completed_program
from memlint.workloads.build.worst_rank import of_worst_rank
from memlint.workloads.discover import complete
from memlint.workloads.spec import Workload

_GROWTH = 4
"""Changes are looked for until a batch this many times as large as the largest fits."""
_MOST_TRIES = 4
"""Numbers of parts that are tried."""


def fit(request: Request) -> Result:
    """What fits of every Workload of the target, on the GPU and with the ranks that `request.detail` names, if any."""
    detail: dict[str, Any] = dict(request.detail)
    here = [replace(workload, **detail) for workload in find_requested(request).workloads]
    return answered("fits", (_fits_or_error(workload, Path(request.root)) for workload in here))


def _fits_or_error(workload: Workload, root: Path) -> Iterator[list[Fit]]:
    try:
        yield from ([fit] for fit in _fits(workload, root))
    except MemlintError as error:
        yield [_described(workload, error=error.message, hint=error.hint)]


def _fits(workload: Workload, root: Path) -> Iterator[Fit]:
    """Yield what fits as far as it is known, the last time with everything."""
    device = workload.device
    if not device.is_cuda:
        raise UsageError("the host has no size that a batch could fit into", "Name a GPU: --gpu rtx4090.")
    completed, _assumptions = complete(of_worst_rank(workload, root).workload, root)
    search = _Search(completed, root)
    note = search.why_whole()
    ways = [search.way((), Effect.EXACT)]
    yield _described(completed, ways=ways, note=note, is_partial=True)
    batch = min(max(1, _GROWTH * ways[0].largest.batch if ways[0].largest else 1), LARGEST_SIZE)
    seen: set[frozenset[Change]] = {frozenset()}
    for exact in (True, False):
        for answer in search.plans(batch, exact=exact):
            if frozenset(answer.changes) in seen:
                continue
            seen.add(frozenset(answer.changes))
            try:
                ways.append(search.way(answer.changes, answer.effect, answer.recompute_share))
            except (MemlintError, NotApplicableError):  # it means something at the size of the plan only
                continue
            yield _described(completed, ways=ways, note=note, is_partial=True)
    yield _described(completed, ways=ways, note=note)


class _Search:
    """One Workload: what it takes with some Changes, at any batch."""

    def __init__(self, workload: Workload, root: Path) -> None:
        self.workload = workload
        self.device = workload.device
        self._root = root
        self._settings = AllocatorSettings.parse(workload.allocator)
        self._trace: Trace = trace_of_workload(completed_program(workload, root), self.device, self._settings)
        self.device = beside(self.device, self._trace.collectives)

    def why_whole(self) -> str | None:
        """Why the batch is not cut into parts."""
        if self.workload.mode != "train":
            return "there are no gradients to accumulate"
        if AccumulationSteps(2).effect_in(self._trace) is Effect.DYNAMICS:
            return "parts of a batch would give BatchNorm other statistics"
        return None

    def plans(self, batch: int, *, exact: bool) -> tuple[WhatIf, ...]:
        """Changes that lower the peak at this batch, each time one more."""
        analysis = Analysis.of(replace(self.workload, batch=batch), self._root)
        limit = self.device.total_nbytes
        # Variables that hold something are no Changes for a program with any batch.
        planner = Planner(analysis.workload, analysis.simulation, lambda *_: {}, limit, at_any_batch=True, exact=exact)
        return planner.plan().steps

    def way(self, changes: tuple[Change, ...], effect: Effect, flops_change: float = 0.0) -> Way:
        """The largest batch with these Changes, and the parts in which the batch asked for fits."""
        sizes = Sizes(self.workload, self._changed(changes), self.device)
        batches = [self.workload.batch]
        sizes.learn(batches)
        largest, is_limit = sizes.largest(batches)
        return Way(
            changes=tuple(change.describe(Names(self._trace.modules, {})) for change in changes),
            effect=effect.value,  # type: ignore[arg-type]
            flops_change=flops_change,
            largest=None if largest is None else row_of(largest, self.device),
            is_limit=is_limit,
            parts=self._parts(changes, largest.batch) if largest and self.why_whole() is None else None,
        )

    def _changed(self, changes: tuple[Change, ...]) -> Callable[[Workload], Any]:
        return lambda workload: ChangedProgram(completed_program(workload, self._root), *changes)

    def _parts(self, changes: tuple[Change, ...], largest: int) -> BatchParts | None:
        batch = self.workload.batch
        numbers = range(-(-batch // largest), min(batch, AccumulationSteps.most) + 1)
        fitting = [number for number in numbers if batch % number == 0]
        for number in fitting[:_MOST_TRIES]:
            more = (AccumulationSteps(number),) if number > 1 else ()
            try:
                program = self._changed((*changes, *more))(self.workload)
                lives = lives_of(storages_of_workload(program, self.device, self._settings))
            except (MemlintError, NotApplicableError):
                return None
            most = peaks(lives.sizes, lives.events, lives.doubts, self.device, self._settings, lives.streams)
            if most.device.high <= self.device.total_nbytes:
                return BatchParts(num_parts=number, batch=batch // number, device=Interval(**most.device._asdict()))
        return None


def _described(workload: Workload, **others: Any) -> Fit:
    return Fit.model_validate({**subject(workload), "batch": workload.batch, **others})

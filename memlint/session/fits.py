"""The largest batch that fits: as a Workload is, and with changes made together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from memlint.accelerator import lazy_imports
from memlint.base.errors import MemlintError, UsageError
from memlint.base.units import LARGEST_SIZE
from memlint.capture.looks import settings_of
from memlint.compile.fallback import not_compiled_text
from memlint.generation.traces import is_long, lives_of_generation, trace_of
from memlint.memory.allocator.reference import AllocatorSettings
from memlint.memory.communicators import beside
from memlint.memory.estimate import Peaks, peaks
from memlint.memory.records import Trace
from memlint.report.model import Interval
from memlint.report.tables import BatchParts, Fit, FitOrder, LongestPrompt, Way, row_of, subject
from memlint.scaling.scaled import lives_of
from memlint.scaling.sizes import Sizes
from memlint.session.prompts import longest_prompt
from memlint.session.tables import gathered, long_run
from memlint.session.target import Target, Traced, meanwhile
from memlint.targets.workload import Workload
from memlint.tracing.workload_errors import storages_of_workload
from memlint.whatif.change import Change, ChangedProgram, Effect, Names, NotApplicableError
from memlint.whatif.changes import AccumulationSteps
from memlint.whatif.plan import Planner
from memlint.whatif.simulation import Simulation
from memlint.worker.jobs import FitsSoFar
from memlint.workloads.construction.construct import complete, completed_program
from memlint.workloads.construction.worst_rank import of_worst_rank

_GROWTH = 4
"""Changes are looked for until a batch this many times as large as the largest fits."""
_MOST_TRIES = 4
"""Numbers of parts that are tried."""


def fit(target: Target, order: FitOrder) -> FitsSoFar:
    """Find the batches of every Workload that fit, with the GPU, the strategy and the numbers of ranks of `order`."""
    given = {name: value for name in ("gpu", "strategy") if (value := getattr(order, name)) is not None}
    settings = [{**given, "world_size": size} for size in order.world_sizes] or [given]
    everywhere = ([replace(workload, **each) for each in settings] for workload in target.workloads)
    fits = gathered(
        (_on_ranks(here, target.root) for here in everywhere),
        lambda fits: FitsSoFar(torch=torch.__version__, fits=fits),
    )
    return FitsSoFar(torch=torch.__version__, fits=fits)


def _on_ranks(workloads: Sequence[Workload], root: Path) -> Iterator[list[Fit]]:
    """Yield what fits of one Workload on each number of ranks, as far as it is known."""
    done: list[Fit] = []
    searches: list[_Search] = []
    for workload in workloads:
        latest: list[Fit] = []
        for fits in _fits_or_error(workload, root, searches):
            latest = [fits]
            yield [*done, *latest]
        done += latest


def _fits_or_error(workload: Workload, root: Path, searches: "list[_Search]") -> Iterator[Fit]:
    lazy_imports.Compilation.begin()
    try:
        yield from _fits(workload, root, searches)
    except MemlintError as error:
        if not lazy_imports.Compilation.is_simulated(workload.compile):
            yield _described(workload, error=error.message, hint=error.hint)
            return
        note = not_compiled_text(error.message)
        for each in _fits_or_error(replace(workload, compile="off"), root, searches):
            yield each.model_copy(update={"note": "; ".join(filter(None, (note, each.note)))})


def _fits(workload: Workload, root: Path, searches: "list[_Search]") -> Iterator[Fit]:
    """Yield what fits as far as it is known, the last time with everything; `searches` grows by this one."""
    if not workload.device.is_cuda:
        raise UsageError("the host has no size that a batch could fit into", "Name a GPU: --gpu rtx4090.")
    completed, _assumptions = complete(of_worst_rank(workload, root).workload, root)
    search = _Search(completed, root, searches[-1] if searches else None)
    note = search.why_whole()
    ways = [search.way((), Effect.EXACT)]
    yield _described(completed, ways=ways, note=note, is_partial=True)
    prompt = search.longest_prompt()
    if prompt is not None:
        yield _described(completed, ways=ways, note=note, longest_prompt=prompt, is_partial=True)
    for chosen in search.plans(ways[0].largest.batch if ways[0].largest else 0):
        try:
            ways.append(search.way(*chosen))
        except (MemlintError, NotApplicableError):  # it means something at the size of the plan only
            continue
        yield _described(completed, ways=ways, note=note, longest_prompt=prompt, is_partial=True)
    searches.append(search)
    yield _described(completed, ways=ways, note=note, longest_prompt=prompt)


class _Chosen(NamedTuple):
    """Changes to be made together."""

    changes: tuple[Change, ...]
    effect: Effect
    flops_change: float


class _Search:
    """One Workload: what it takes with some Changes, at any batch; `before` is that of another number of ranks."""

    def __init__(self, workload: Workload, root: Path, before: "_Search | None" = None) -> None:
        self.workload = workload
        self.device = workload.device
        self.chosen: tuple[_Chosen, ...] = ()
        """The changes that lower the peak up to the batch `planned`."""
        self.planned = 0
        self.learned: dict[tuple[Change, ...], Sizes] = {}
        """Those, of this number of ranks or of one before, that say how everything grows with the batch."""
        self._before = before
        self._root = root
        self._settings = AllocatorSettings.parse(workload.allocator)
        built: list[Any] = []

        def program(each: Workload) -> Any:
            built.append(completed_program(each, root))
            return built[-1]

        self._trace: Trace = trace_of(workload, program, self._settings, meanwhile)
        self.config: object = getattr(getattr(built[-1], "model", None), "config", None)
        """The config of its model, if that has one."""
        self.device = beside(self.device, self._trace.collectives)

    def why_whole(self) -> str | None:
        """Return the reason why the batch is not cut into parts; None if it can be."""
        if self.workload.mode != "train":
            return "there are no gradients to accumulate"
        if AccumulationSteps(2).effect_in(self._trace) is Effect.DYNAMICS:
            return "parts of a batch would give BatchNorm other statistics"
        return None

    def plans(self, largest: int) -> Iterator[_Chosen]:
        """Changes that lower the peak of batches beyond the `largest` that fits, each time one more.

        They are those of the number of ranks before, unless many more fit here.
        """
        batch = min(max(1, _GROWTH * largest), LARGEST_SIZE)
        if self._before is not None and batch <= _GROWTH * self._before.planned:
            self.chosen, self.planned = self._before.chosen, self._before.planned
            yield from self.chosen
            return
        self.planned = batch
        if is_long(self.workload):  # each try would take two traces
            return
        traced = Traced.of(replace(self.workload, batch=batch), self._root)
        capture = traced.capture

        def retrace(changes: tuple[Change, ...]) -> Trace | None:
            changed = traced.retraced(changes)
            return None if changed is None else changed.trace

        simulation = Simulation(traced.trace, capture.device, settings_of(capture), retrace)
        limit = self.device.total_nbytes
        seen: set[frozenset[Change]] = {frozenset()}
        for exact in (True, False):
            # Variables that hold something are no Changes for a program with any batch.
            planner = Planner(traced.workload, simulation, lambda *_: {}, limit, at_any_batch=True, exact=exact)
            for answer in planner.plan().steps:
                if frozenset(answer.changes) in seen:
                    continue
                seen.add(frozenset(answer.changes))
                self.chosen += (_Chosen(answer.changes, answer.effect, answer.recompute_share),)
                yield self.chosen[-1]

    def way(self, changes: tuple[Change, ...], effect: Effect, flops_change: float = 0.0) -> Way:
        """The largest batch with these Changes, and the parts in which the batch asked for fits."""
        changed = self._changed(changes)
        sizes = Sizes(self.workload, changed, self.device, run=long_run(self.workload, changed))
        if sizes.run is not None and not changes:
            sizes.lives[(self.workload.batch,)] = lives_of_generation(self._trace)
        batches = [self.workload.batch]
        learned = self._before.learned.get(changes) if self._before is not None else None
        if learned is None or not sizes.follow(learned, batches):
            sizes.learn(batches)
            learned = sizes
        self.learned[changes] = learned
        largest, is_limit = sizes.largest(batches)
        return Way(
            changes=tuple(change.describe(Names(self._trace.modules, {})) for change in changes),
            effect=effect.value,  # type: ignore[arg-type]
            flops_change=flops_change,
            largest=None if largest is None else row_of(largest, self.device),
            is_limit=is_limit,
            parts=self._parts(changes, sizes, largest.batch) if largest and self.why_whole() is None else None,
        )

    def longest_prompt(self) -> LongestPrompt | None:
        """The longest prompt with which a generation fits at the batch asked for; None for what has no prompt."""
        if self.workload.mode != "generate":
            return None
        return longest_prompt(
            self.workload, self._changed(()), self.device, lives_of_generation(self._trace), self.config
        )

    def _changed(self, changes: tuple[Change, ...]) -> Callable[[Workload], Any]:
        return lambda workload: ChangedProgram(completed_program(workload, self._root), *changes)

    def _parts(self, changes: tuple[Change, ...], sizes: Sizes, largest: int) -> BatchParts | None:
        batch = self.workload.batch
        numbers = range(-(-batch // largest), min(batch, AccumulationSteps.most) + 1)
        fitting = [number for number in numbers if batch % number == 0]
        for number in fitting[:_MOST_TRIES]:
            try:
                most = sizes.at((batch,)).peaks if number == 1 else self._accumulated(changes, number)
            except (MemlintError, NotApplicableError):
                return None
            if most is not None and most.device.high <= self.device.total_nbytes:
                return BatchParts(num_parts=number, batch=batch // number, device=Interval(**most.device._asdict()))
        return None

    def _accumulated(self, changes: tuple[Change, ...], number: int) -> Peaks:
        program = self._changed((*changes, AccumulationSteps(number)))(self.workload)
        lives = lives_of(storages_of_workload(program, self.device, self._settings))
        return peaks(lives.sizes, lives.events, lives.doubts, self.device, self._settings, lives.streams)


def _described(workload: Workload, **others: Any) -> Fit:
    compiled = workload.compile != "off" if lazy_imports.Compilation.is_requested else None
    sizes = {"batch": workload.batch, "dimensions": dict(workload.dimensions)}
    return Fit.model_validate({**subject(workload), **sizes, "compiled": compiled, **others})

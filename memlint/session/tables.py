"""Tables of sizes: those that an Order asks for, and those around the batch size of a Workload."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from memlint.accelerator import lazy_imports
from memlint.base.errors import MemlintError
from memlint.base.units import LARGEST_SIZE
from memlint.compile.fallback import not_compiled_text
from memlint.generation.traces import is_long, lives_of_generation, trace_of
from memlint.lint.rule import MANY_NODES
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.communicators import beside
from memlint.report.model import Record, Sweep, SweepRow
from memlint.report.tables import Order, row_of, subject
from memlint.scaling.polynomials import NUM_SIZES, Point
from memlint.scaling.scaled import Lives, Sample, lives_of
from memlint.scaling.sizes import Sizes
from memlint.session.ahead import Ahead
from memlint.session.target import MOST_CALLS, Target, Traced, meanwhile
from memlint.targets.workload import Workload
from memlint.tracing.workload_errors import trace_of_workload
from memlint.worker.child import write_partial
from memlint.worker.jobs import Sweeps
from memlint.workloads.construction.construct import build, complete, completed_program, simulated_device
from memlint.workloads.construction.program import AUTOCASTS
from memlint.workloads.construction.worst_rank import of_worst_rank

_Table = TypeVar("_Table")

MOST_CALLS_OF_OTHER = MANY_NODES
"""Kernels in a trace up to which there is a table with another dtype around its batch size."""
_MOST_COMPILING, _NUM_COMPILED = 60.0, 10
"""Processor seconds that the compilations of such a table may take, and about how many there are."""
_MULTIPLES = (2, 4)
_OTHER = {
    "float32": "bf16-amp",
    "bf16-amp": "bfloat16",
    "bfloat16": "bf16-amp",
    "fp16-amp": "bf16-amp",
    "float16": "bfloat16",
    "int8": "nf4",
    "nf4": "int8",
    "fp4": "int8",
}
"""The other precision that people try, by precision."""


def sweep(target: Target, order: Order) -> Sweeps:
    """Sweeps of every Workload of the target, for all that `order` asks for."""
    return Sweeps(
        torch=torch.__version__,
        sweeps=gathered(
            (
                _tables(_of_ranks(replace(workload, dtype=dtype, gpu=gpu), *pair), target.root, order)  # type: ignore[arg-type]
                for workload in target.workloads
                for gpu, dtype, pair in itertools.product(
                    order.gpus or (workload.gpu,), order.dtypes or (workload.dtype,), order.spread
                )
            ),
            lambda sweeps: Sweeps(torch=torch.__version__, sweeps=sweeps),
        ),
    )


def _of_ranks(workload: Workload, strategy: str | None, world_size: int | None) -> Workload:
    ranks = {"strategy": strategy, "world_size": world_size}
    return replace(workload, **{name: value for name, value in ranks.items() if value is not None})  # type: ignore[arg-type]


def ahead(completed: Workload, root: Path) -> tuple[str, list[Sweep]]:
    """Make the longer half of `around` while the Workload, of which all sizes are known, is traced.

    That is the table with another dtype, with the Workload that it is of, as text; there is none where there is no
    such Workload. Nothing is compiled: a program that compiles has no table with another dtype.
    """
    other = _with_other_dtype(completed, root)
    if other is None:
        return "", []
    eager = replace(other, compile="off")
    *_growing, tables = _tables(eager, root, _order(other), most_calls=MOST_CALLS_OF_OTHER)
    return _text_of(other), tables


def around(target: Target, number: int) -> Sweeps:
    """Sweeps of a Workload around its own batch size, with its dtype and with another.

    There are none on the host, and none of a long generation, each of whose sizes takes two traces.
    """
    own, begun = target.traced(number), target.begun.pop(number, None)
    growing = [_around(own, begun)] if own.device.is_cuda and own.trace.whole is None else []
    return Sweeps(
        torch=torch.__version__,
        sweeps=gathered(growing, lambda sweeps: Sweeps(torch=torch.__version__, sweeps=sweeps)),
    )


def gathered(growing: Iterable[Iterator[Sequence[_Table]]], document: Callable[[list[_Table]], Record]) -> list[_Table]:
    """Give the last of everything that grows; the parent gets a `document` of whatever there is meanwhile."""
    done: list[_Table] = []
    for snapshots in growing:
        latest: Sequence[_Table] = ()
        for latest in snapshots:
            write_partial(document([*done, *latest]))
        done += latest
    return done


def _around(traced: Traced, begun: Ahead[tuple[str, list[Sweep]]] | None) -> Iterator[list[Sweep]]:
    """Yield the tables with its own dtype as they grow, then with those of another, unless there is an error.

    Those of the other may have `begun`.
    """
    workload, root = traced.workload, traced.root
    own: list[Sweep] = []
    known = Sample.of_trace((workload.batch,), traced.trace, traced.calls)
    if traced.compile_seconds:
        if begun is not None:
            begun.stop()
        yield from _compiled_and_eager(traced, _order(workload), known)
        return
    for own in _tables(workload, root, _order(workload), most_calls=MOST_CALLS, traced=known):
        yield own
    if own[-1].error is None:
        other = _with_other_dtype(workload, root)
        if other is None:
            return
        text, tables = begun.result() if begun is not None else ("", [])
        if tables and text == _text_of(other):
            yield [*own, *tables]
            return
        others = _tables(other, root, _order(other), most_calls=MOST_CALLS_OF_OTHER)
        yield from ([*own, *tables] for tables in others)


def _order(workload: Workload) -> Order:
    """The batch sizes around that of the Workload."""
    batches = sorted({max(1, workload.batch // 2), workload.batch, *(workload.batch * n for n in _MULTIPLES)})
    return Order(batches=tuple(batch for batch in batches if batch <= LARGEST_SIZE))


def _with_other_dtype(workload: Workload, root: Path) -> Workload | None:
    """The same with another dtype; None where the program enters autocast where it wants to."""
    other = replace(workload, dtype=_OTHER[workload.dtype])  # type: ignore[arg-type]
    return None if other.dtype in AUTOCASTS and _has_own_step(workload, root) else other


def _text_of(workload: Workload | None) -> str:
    """Return a text that differs between Workloads, but for what was assumed of them, which a table does not say."""
    return "" if workload is None else repr(replace(workload, assumed=frozenset()))


def _compiled_and_eager(traced: Traced, order: Order, known: Sample) -> Iterator[list[Sweep]]:
    """Yield a table of compiled steps, each of which compiles, and one of eager ones beside it."""
    workload, root = traced.workload, traced.root
    compiled: list[Sweep] = []
    if _NUM_COMPILED * traced.compile_seconds <= _MOST_COMPILING:
        for compiled in _tables(workload, root, order, traced=known, compiles=True):
            yield compiled
    else:
        seconds = f"each batch size takes a compilation of {traced.compile_seconds:.0f} s"
        compiled = [_described(workload, compiled=True, error=seconds, hint="See memlint sweep.")]
    eager = _tables(replace(workload, compile="off"), root, order, most_calls=MOST_CALLS, compiles=True)
    yield from ([*compiled, *tables] for tables in eager)


def _has_own_step(workload: Workload, root: Path) -> bool:
    with simulated_device(workload.device):
        return build(workload, root).step is not None


def _tables(
    workload: Workload, root: Path, order: Order, *, compiles: bool = False, **others: Any
) -> Iterator[list[Sweep]]:
    """Yield the tables of one Workload as `_tables_as_asked`, eagerly where its compilation cannot be simulated.

    `compiles` is True if it is known to ask `torch.compile` for something.
    """
    lazy_imports.Compilation.begin(is_requested=compiles)
    for tables in _tables_as_asked(workload, root, order, **others):
        error = _failure(tables[-1])
        if not error or not lazy_imports.Compilation.is_simulated(workload.compile):
            yield tables
            continue
        if tables[-1].is_partial:
            continue
        note = not_compiled_text(error)
        for eager in _tables_as_asked(replace(workload, compile="off"), root, order, **others):
            yield [each.model_copy(update={"note": "; ".join(filter(None, (note, each.note)))}) for each in eager]
        return


def _failure(table: Sweep) -> str:
    """Return the error of a table, or of its rows if all of them have one; else empty."""
    errors = [row.error for row in table.rows]
    return table.error or ((errors[0] or "") if errors and all(errors) else "")


def _tables_as_asked(
    workload: Workload,
    root: Path,
    order: Order,
    *,
    most_calls: int | None = None,
    traced: Sample | None = None,
) -> Iterator[list[Sweep]]:
    """Yield the tables of one Workload, one for each combination of sizes, whenever there is more of them.

    `traced` is one that was traced.
    """
    try:
        workload = of_worst_rank(workload, root).workload
        first = {name: sizes[0] for name, sizes in order.dimensions.items()}
        completed, _assumptions = complete(_with_dimensions(workload, first) if first else workload, root)
        varied = {name: sizes for name, sizes in order.dimensions.items() if len(sizes) > NUM_SIZES}
        together = None
        if varied and not is_long(completed):
            together = _sizes(completed, root, varied)
            if together.learn(order.batches, list(varied.values())) is not None:
                together = None
    except MemlintError as error:
        yield [_failed(workload, error)]
        return
    done: list[Sweep] = []
    for sizes in itertools.product(*order.dimensions.values()):
        at = dict(zip(order.dimensions, sizes, strict=True))
        here = _with_dimensions(completed, at)
        rest = tuple(at[name] for name in together.dimensions) if together else ()
        known = together or _sizes(here, root, {}, most_calls=most_calls, traced=traced)
        latest: list[Sweep] = []
        for table in _table(here, known, order.batches, rest, is_learned=together is not None):
            latest = [table]
            yield [*done, table]
        done += latest


def _table(
    workload: Workload, sizes: Sizes, batches: Sequence[int], rest: Point, *, is_learned: bool
) -> Iterator[Sweep]:
    """Yield the table of one size of everything but the batch, row by row, the last time with the largest batch."""

    def row(batch: int) -> SweepRow:
        return row_of(sizes.at((batch, *rest)), sizes.device)

    def table(rows: list[SweepRow], **others: Any) -> Sweep:
        traced = sorted(batch for batch, *dimensions in sizes.lives if tuple(dimensions) == rest)
        return _described(workload, note=note, rows=rows, traced=traced, **others)

    try:
        note = None if is_learned else sizes.learn(batches)
        rows: list[SweepRow] = []
        for batch in batches:
            rows = [*rows, row(batch)]
            yield table(rows, is_partial=True)
        largest, is_limit = sizes.largest(batches, rest)
    except MemlintError as error:
        yield _failed(workload, error)
        return
    # What the search has traced since is known better.
    at_most = None if largest is None else row_of(largest, sizes.device)
    yield table([row(batch) for batch in batches], largest=at_most, is_limit=is_limit)


def _sizes(
    workload: Workload,
    root: Path,
    varied: Mapping[str, Sequence[int]],
    *,
    most_calls: int | None = None,
    traced: Sample | None = None,
) -> Sizes:
    axes = tuple(map(_axis, varied.values()))
    device = workload.device
    if workload.world_size > 1:
        settings = AllocatorSettings.parse(workload.allocator)
        device = beside(device, trace_of_workload(completed_program(workload, root), device, settings).collectives)
    return Sizes(
        workload,
        lambda each: completed_program(each, root),
        device,
        tuple(varied),
        axes,
        most_calls,
        line_first=most_calls is not None,
        run=long_run(workload, lambda each: completed_program(each, root)),
        lives={} if traced is None else {traced.point: lives_of(traced.storages)},
        samples={traced.point: traced} if traced is not None and traced.calls else {},
    )


def long_run(workload: Workload, program: Callable[[Workload], Any]) -> Callable[[Workload], Lives] | None:
    """Return what gives the storages of a long generation at any size; None for any other Workload."""
    settings = AllocatorSettings.parse(workload.allocator)
    return (
        (lambda each: lives_of_generation(trace_of(each, program, settings, meanwhile))) if is_long(workload) else None
    )


def _axis(sizes: Sequence[int]) -> range:
    """Three sizes from the smallest on, with all others whole steps away: what kernels round stays alike."""
    first = min(sizes)
    step = math.gcd(*(size - first for size in sizes))
    return range(first, first + NUM_SIZES * step, step)


def _with_dimensions(workload: Workload, sizes: Mapping[str, int]) -> Workload:
    return replace(workload, dimensions={**workload.dimensions, **sizes})


def _failed(workload: Workload, error: MemlintError) -> Sweep:
    return _described(workload, error=error.message, hint=error.hint or "")


def _described(workload: Workload, **others: Any) -> Sweep:
    asks = lazy_imports.Compilation.is_requested
    compiled = workload.compile != "off" if asks else None
    fields = {**subject(workload), "dimensions": dict(workload.dimensions), "compiled": compiled, **others}
    return Sweep.model_validate(fields)

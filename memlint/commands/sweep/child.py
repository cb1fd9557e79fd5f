"""What happens in the child process of a sweep: the tables that an Order asks for."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from memlint.base.errors import MemlintError
from memlint.base.units import LARGEST_SIZE
from memlint.commands.analyse.child import find_asked
from memlint.commands.sweep.records import Order
from memlint.commands.sweep.subject import subject
from memlint.cuda.devices import device_named
from memlint.lint.rule import MANY_NODES
from memlint.report.model import Sweep
from memlint.scaling.grid import NUM_SIZES
from memlint.scaling.steps import Steps
from memlint.worker.child import write_partial
from memlint.worker.protocol import Request, Result
from memlint.workloads.build.construct import completed_program
from memlint.workloads.find.discover import complete

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memlint.scaling.grid import Point
    from memlint.workloads.spec import Workload


MOST_CALLS = MANY_NODES
"""Kernels in a trace up to which a table around its batch size takes little longer than the other rules."""
_MULTIPLES = (2, 4)
_OTHER = {
    "float32": "bf16-amp",
    "bf16-amp": "bfloat16",
    "bfloat16": "bf16-amp",
    "fp16-amp": "bf16-amp",
    "float16": "bfloat16",
}
"""What else people train with."""


def sweep(request: Request) -> Result:
    """Sweeps of every Workload of the target, for all that the Order in `request.detail` asks for."""
    root, order = Path(request.root), Order.model_validate(request.detail)
    done: list[Sweep] = []
    for workload in find_asked(request).workloads:
        for gpu, dtype in itertools.product(order.gpus or (workload.gpu,), order.dtypes or (workload.dtype,)):
            asked = replace(workload, dtype=dtype, gpu=gpu)  # type: ignore[arg-type]
            found: list[Sweep] = []
            for found in _tables(asked, root, order):
                write_partial(_result([*done, *found]))
            done += found
    return _result(done)


def around(request: Request) -> Result:
    """Sweeps of every Workload of the target around its own batch size, with its dtype and with another."""
    root = Path(request.root)
    done: list[Sweep] = []
    for workload in find_asked(request).workloads:
        if not device_named(workload.gpu).is_cuda:
            continue
        batches = sorted({max(1, workload.batch // 2), workload.batch, *(workload.batch * n for n in _MULTIPLES)})
        for dtype in (workload.dtype, _OTHER[workload.dtype]):
            asked = replace(workload, dtype=dtype)  # type: ignore[arg-type]
            order = Order(batches=tuple(batch for batch in batches if batch <= LARGEST_SIZE), dtypes=(), gpus=())
            found: list[Sweep] = []
            for found in _tables(asked, root, order, most_calls=MOST_CALLS):
                write_partial(_result([*done, *found]))
            done += found
            if found[-1].error is not None:
                break
    return _result(done)


def _result(sweeps: Sequence[Sweep]) -> Result:
    return Result.model_validate(
        {"torch": torch.__version__, "detail": {"sweeps": [each.model_dump(mode="json") for each in sweeps]}}
    )


def _tables(workload: Workload, root: Path, order: Order, *, most_calls: int | None = None) -> Iterator[list[Sweep]]:
    """Yield the tables of one Workload, one for each combination of sizes, whenever there is more of them."""
    try:
        asked = {name: sizes[0] for name, sizes in order.dimensions.items()}
        completed, _assumptions = complete(
            replace(workload, dimensions={**workload.dimensions, **asked}) if asked else workload, root
        )
    except MemlintError as error:
        yield [_described(workload, error=error.message, hint=error.hint or "")]
        return
    varied = {name: sizes for name, sizes in order.dimensions.items() if len(sizes) > NUM_SIZES}
    if varied:
        steps = _steps(completed, root, varied)
        try:
            note = steps.learn(order.batches, list(varied.values()))
        except MemlintError as error:
            yield [_described(workload, error=error.message, hint=error.hint or "")]
            return
        if note is None:
            yield from _of_each(completed, root, order, steps)
            return
    yield from _of_each(completed, root, order, None, most_calls=most_calls)


def _of_each(
    workload: Workload, root: Path, order: Order, together: Steps | None, *, most_calls: int | None = None
) -> Iterator[list[Sweep]]:
    """Tables from `together`, which has learned how all sizes grow, or with traces of their own for each of them."""
    done: list[Sweep] = []
    names = tuple(order.dimensions)
    for sizes in itertools.product(*order.dimensions.values()):
        at = dict(zip(names, sizes, strict=True))
        here = replace(workload, dimensions={**workload.dimensions, **at})
        rest = tuple(at[name] for name in together.dimensions) if together else ()
        steps = together or _steps(here, root, {}, most_calls=most_calls)
        table = _described(here)
        for table in _table(here, steps, order.batches, rest, is_learned=together is not None):
            yield [*done, table]
        done.append(table)


def _table(
    workload: Workload, steps: Steps, batches: Sequence[int], rest: Point, *, is_learned: bool
) -> Iterator[Sweep]:
    """Yield the table of one size of everything but the batch, row by row, the last time with the largest batch."""
    try:
        note = None if is_learned else steps.learn(batches)
        found: dict[str, Any] = {"note": note, "rows": []}
        for batch in batches:
            found["rows"] = [*found["rows"], steps.row((batch, *rest))]
            yield _described(workload, is_partial=True, **found, traced=_traced(steps, rest))
        largest, is_limit = steps.largest(batches, rest)
    except MemlintError as error:
        yield _described(workload, error=error.message, hint=error.hint or "")
        return
    rows = [steps.row((batch, *rest)) for batch in batches]
    found = {"note": note, "rows": rows, "largest": largest, "is_limit": is_limit, "traced": _traced(steps, rest)}
    yield _described(workload, **found)


def _traced(steps: Steps, rest: Point) -> list[int]:
    return sorted(batch for batch, *sizes in steps.lives if tuple(sizes) == rest)


def _steps(
    workload: Workload, root: Path, varied: Mapping[str, Sequence[int]], *, most_calls: int | None = None
) -> Steps:
    program = functools.partial(_program, root)
    axes = tuple(map(_axis, varied.values()))
    return Steps(workload, program, device_named(workload.gpu), tuple(varied), axes, most_calls)


def _program(root: Path, workload: Workload) -> Any:
    return completed_program(workload, root)


def _axis(sizes: Sequence[int]) -> range:
    """Three sizes from the smallest on, with all others whole steps away: what kernels round stays alike."""
    first = min(sizes)
    step = math.gcd(*(size - first for size in sizes))
    return range(first, first + NUM_SIZES * step, step)


def _described(workload: Workload, **found: Any) -> Sweep:
    return Sweep.model_validate({**subject(workload), "dimensions": dict(workload.dimensions), **found})

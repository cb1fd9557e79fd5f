"""Batch sizes against dtypes: device bytes as a heat map with lines for the limits."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from memlint.report.model import Sweep, SweepRow, Verdict, Workload
from memlint.report.phrases import largest_batch

_SHADES = 9


class Cell(NamedTuple):
    """One batch size with one dtype."""

    row: SweepRow | None
    """None if this batch size was not asked for with this dtype."""
    shade: int
    """Shade from 0, almost nothing, to 9, the whole GPU; 10 is above that."""
    is_largest: bool
    """True if no larger batch surely fits."""
    ends_gpu: bool
    """True if the next larger batch is the first that does not surely fit into the GPU."""
    ends_budget: bool
    """True if the next larger batch is the first that does not surely fit into the budget."""


class BatchGrid(NamedTuple):
    """All batch sizes on one GPU with one size of each other dimension."""

    gpu_title: str
    gpu_nbytes: int
    dimensions: str
    sweeps: list[Sweep]
    """One column each."""
    lines: list[tuple[int, tuple[Cell, ...]]]
    """A batch size, and a cell for each sweep."""
    largest: list[str]
    """The largest batch that fits, for each sweep."""


def grids(workload: Workload) -> list[BatchGrid]:
    """Group the sweeps of a Workload: those that differ only in dtype share a grid."""

    def place(sweep: Sweep) -> tuple[str, str]:
        return sweep.gpu_title, ", ".join(f"{name} {size}" for name, size in sweep.dimensions.items())

    made = sorted((sweep for sweep in workload.sweep if sweep.rows or sweep.largest), key=place)
    return [_grid(*key, list(sweeps), workload.budget) for key, sweeps in groupby(made, key=place)]


def _grid(gpu_title: str, dimensions: str, sweeps: list[Sweep], budget: Verdict | None) -> BatchGrid:
    columns = [{row.batch: row for row in (*sweep.rows, *filter(None, [sweep.largest]))} for sweep in sweeps]
    batches = sorted({batch for column in columns for batch in column})
    cells = [_cells(sweep, column, batches, budget) for sweep, column in zip(sweeps, columns, strict=True)]
    return BatchGrid(
        gpu_title=gpu_title,
        gpu_nbytes=sweeps[0].gpu_nbytes,
        dimensions=dimensions,
        sweeps=sweeps,
        lines=list(zip(batches, zip(*cells, strict=True), strict=True)),
        largest=[largest_batch(sweep, if_partial="not finished") for sweep in sweeps],
    )


def _cells(sweep: Sweep, rows: dict[int, SweepRow], batches: Sequence[int], budget: Verdict | None) -> Iterator[Cell]:
    last_in_gpu = max((batch for batch, row in rows.items() if row.outcome == "fits"), default=None)
    last_in_budget = max((batch for batch, row in rows.items() if _is_within(row, budget)), default=None)
    for batch in batches:
        row = rows.get(batch)
        yield Cell(
            row=row,
            shade=_shade(row, sweep.gpu_nbytes),
            is_largest=sweep.largest is not None and batch == sweep.largest.batch,
            ends_gpu=batch == last_in_gpu,
            ends_budget=batch == last_in_budget,
        )


def _is_within(row: SweepRow, budget: Verdict | None) -> bool:
    interval = getattr(row, budget.measure) if budget is not None else None
    return budget is not None and interval is not None and bool(interval.high <= budget.limit)


def _shade(row: SweepRow | None, limit: int) -> int:
    if row is None or row.device is None:
        return 0
    if row.outcome == "does not fit":
        return _SHADES + 1
    return max(0, min(_SHADES, round(_SHADES * row.device.estimate / limit))) if limit > 0 else 0

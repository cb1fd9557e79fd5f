"""Batch sizes against dtypes: device bytes as a map, with the limits as lines through it."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from memlint.report.model import Sweep, SweepRow, Verdict, Workload
from memlint.report.phrases import largest_batch

_SHADES = 9


class Cell(NamedTuple):
    """One batch size with one dtype."""

    row: SweepRow | None
    """None where it was not asked for."""
    shade: int
    """From 0, next to nothing, to 9, all of the GPU; 10 is more than that."""
    is_largest: bool
    """Whether no larger batch surely fits."""
    ends_gpu: bool
    """Whether the next larger batch is the first that the GPU does not surely hold."""
    ends_budget: bool
    """The same of the budget."""


class BatchGrid(NamedTuple):
    """Everything on one GPU with one size of each dimension but the batch."""

    gpu_title: str
    gpu_nbytes: int
    dimensions: str
    sweeps: list[Sweep]
    """A column each."""
    lines: list[tuple[int, tuple[Cell, ...]]]
    """The batch, and a cell for each sweep."""
    largest: list[str]
    """For each sweep the largest batch that fits."""


def grids(workload: Workload) -> list[BatchGrid]:
    """The sweeps of a Workload, those that differ only in dtype side by side."""

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

from __future__ import annotations

from memlint.report.model import Outcome, Sweep, SweepRow, Verdict, Workload
from memlint.report.page.grid import grids
from tests.report.sample import GIB, exactly


def row(batch: int, gib: int, outcome: Outcome = "fits") -> SweepRow:
    return SweepRow(batch=batch, device=exactly(gib * GIB), outcome=outcome)


def sweep(
    dtype: str, rows: list[SweepRow], largest: SweepRow | None, gpu: str = "A100", *, is_limit: bool = True
) -> Sweep:
    return Sweep(
        name="a", target="a.py", mode="train", optimizer="sgd", dtype=dtype, dimensions={"seq": 512}, gpu=gpu.lower(),
        gpu_title=gpu, gpu_nbytes=80 * GIB, rows=rows, largest=largest, is_limit=is_limit,
    )  # fmt: skip


def workload(*sweeps: Sweep, budget: int | None = None) -> Workload:
    verdict = Verdict(outcome="fits", limit=budget * GIB, limit_name="budget") if budget else None
    return Workload(name="a", target="a.py", sweep=list(sweeps), budget=verdict)


def test_dtypes_are_side_by_side_and_the_largest_batch_has_its_row() -> None:
    (grid,) = grids(
        workload(
            sweep("float32", [row(4, 20), row(8, 40)], row(15, 79)),
            sweep("bfloat16", [row(4, 10), row(8, 20)], row(31, 80), is_limit=False),
        )
    )

    assert [batch for batch, _cells in grid.lines] == [4, 8, 15, 31]
    assert grid.dimensions == "seq 512"
    assert grid.largest == ["15", "31 or more"]
    assert [[cell.is_largest for cell in cells] for _batch, cells in grid.lines] == [
        [False, False], [False, False], [True, False], [False, True],
    ]  # fmt: skip
    assert grid.lines[2][1][1].row is None


def test_the_lines_are_below_the_last_batch_that_surely_stays_within() -> None:
    rows = [row(4, 20), row(8, 40), row(16, 80, "uncertain"), row(32, 160, "does not fit")]
    (grid,) = grids(workload(sweep("float32", rows, None), budget=30))

    assert [cells[0].ends_gpu for _batch, cells in grid.lines] == [False, True, False, False]
    assert [cells[0].ends_budget for _batch, cells in grid.lines] == [True, False, False, False]
    assert [cells[0].shade for _batch, cells in grid.lines] == [2, 4, 9, 10]
    assert grid.largest == ["none"]


def test_each_gpu_has_a_grid_of_its_own() -> None:
    found = grids(workload(sweep("float32", [row(4, 20)], None, "H100"), sweep("float32", [row(4, 20)], None, "A100")))

    assert [grid.gpu_title for grid in found] == ["A100", "H100"]


def test_nothing_where_there_is_no_sweep() -> None:
    assert grids(workload()) == []

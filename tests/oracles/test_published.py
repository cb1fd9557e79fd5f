"""What others measured and published lies where the Report says."""

from __future__ import annotations

import importlib.util
import statistics

import pytest

from benchmarks.published import FITTED, GOAL, HELD_OUT, NEAR, ROWS, WIDTH, compared, half_of
from fixtures.published import programs
from memlint.memory.devices import device_named

LIBRARIES = ("timm", "torchvision", "transformers")
FAR = {
    *(f"{model}, batch {batch}" for model in ("YOLOv8s", "YOLOv8l-seg") for batch in (2, 4, 8, 16)),
    *(f"SegFormer {model} 512 x 512, batch 2" for model in ("B2", "B3", "B4", "B5")),
    *("SegFormer B5 640 x 640, batch 2", "DeepLabV3+ R-50 VOC 512 x 512, batch 4"),
}
"""Of the allocator's figures, those more than 2 % off: fixtures/published/README.md says why."""


def test_every_row_has_a_source_a_gpu_and_a_program() -> None:
    assert len(ROWS) == len({(row["url"], row["name"], row["measured"]) for row in ROWS}) >= 25
    for row in ROWS:
        assert row["url"].startswith("https://")
        assert device_named(row["gpu"]).is_cuda
        assert row["mib"] << 20 < device_named(row["gpu"]).total_nbytes
        assert hasattr(programs, row["program"])


def test_at_least_half_of_the_rows_is_held_out_and_models_stay_together() -> None:
    halves = [half_of(row) for row in ROWS]
    assert halves.count(HELD_OUT) >= len(ROWS) / 2 > halves.count(FITTED) > 0
    models = {(row["url"], row["name"].partition(", batch")[0], half) for row, half in zip(ROWS, halves, strict=True)}
    assert len(models) == len({(url, name) for url, name, _ in models})


@pytest.mark.slow
@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in LIBRARIES), reason="a library is missing")
def test_nine_of_ten_device_totals_that_are_held_out_lie_inside_the_interval() -> None:
    rows = [compared(row) for row in ROWS if half_of(row) == HELD_OUT and row["measured"] == "device"]
    outside = [row.name for row in rows if not row.is_inside]
    assert len(outside) <= (1 - GOAL) * len(rows), outside


@pytest.mark.slow
@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in LIBRARIES), reason="a library is missing")
def test_with_the_context_of_their_machine_nine_of_ten_lie_in_an_interval_of_a_fifth() -> None:
    known = [
        row.where_context_is_known
        for row in map(compared, ROWS)
        if row.half == HELD_OUT and row.kind == "device" and row.with_context
    ]
    outside = [row.name for row in known if row and not row.is_inside]
    assert len(outside) <= (1 - GOAL) * len(known), outside
    assert statistics.median(row.width for row in known if row) <= WIDTH


@pytest.mark.parametrize(
    ("name", "share"),
    [("SegFormer B1 512 x 512, batch 2", 0.01), ("DeepLabV3+ R-50 ADE20K 512 x 512, batch 4", 0.02)],
)
def test_models_with_large_softmaxes_take_what_pytorch_before_1_11_took(name: str, share: float) -> None:
    """Without the input that softmax keeps they were 19 and 13 % too little."""
    (row,) = (row for row in ROWS if row["name"] == name)
    assert abs(compared(row).error) <= share


@pytest.mark.slow
@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in LIBRARIES), reason="a library is missing")
def test_what_the_allocator_holds_is_near_but_for_the_rows_whose_cause_is_named() -> None:
    rows = [compared(row) for row in ROWS if row["measured"] != "device"]
    far = {row.name for row in rows if not row.is_inside and abs(row.error) > NEAR}
    assert far <= FAR

"""Measurements by others with `cudnn.benchmark` lie in the interval, where the CUDA context of their machine is given."""

import importlib.util

import pytest

from benchmarks.published_searches import TABLE, compared


def test_rows_have_a_source_and_no_model_is_in_both_halves() -> None:
    assert TABLE["source"].startswith("https://")
    assert len(TABLE["held_out"]) > len(TABLE["fitted"]) > 0
    assert not {row["model"] for row in TABLE["held_out"]} & {row["model"] for row in TABLE["fitted"]}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is missing")
@pytest.mark.parametrize(
    ("model", "batch"), [("xception65p", 16), ("xception65p", 32), ("mobilevitv2_125", 64), ("resnetblur18", 128)]
)
def test_the_largest_search_lies_in_the_interval(model: str, batch: int) -> None:
    (row,) = (row for row in TABLE["fitted"] if (row["model"], row["batch"]) == (model, batch))
    assert compared(row).is_inside


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is missing")
def test_most_rows_that_are_held_out_lie_inside_the_interval() -> None:
    outside = [row for row in map(compared, TABLE["held_out"]) if not row.is_inside]
    assert len(outside) <= 0.12 * len(TABLE["held_out"]), outside

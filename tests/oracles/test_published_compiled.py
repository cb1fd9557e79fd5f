"""Peaks of compiled steps that others measured on a GPU."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from benchmarks.published_compiled import ROWS, Row, predicted
from memlint.base.patching import patched
from memlint.compile import requests
from memlint.memory.devices import device_named

MEASURED = [row for row in ROWS if row.compiled is not None]


def test_every_row_has_a_figure_a_source_and_a_gpu() -> None:
    for row in ROWS:
        assert (row.compiled is None) != (row.ratio is None)
        assert row.url.startswith("https://")
        assert device_named(row.gpu).is_cuda


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="a library is missing")
@pytest.mark.parametrize("row", MEASURED, ids=[row.name for row in MEASURED])
def test_a_compiled_step_of_2024_takes_what_was_measured_within_two_percent(row: Row) -> None:
    with patched([(torch, "compile", requests.compile_where_simulated)]):
        assert predicted(row, compiles=True) == pytest.approx(row.compiled, rel=0.02)

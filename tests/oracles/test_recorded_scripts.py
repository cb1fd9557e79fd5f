"""Whole scripts as an H200 ran them: fixtures/scripts/h200."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "fixtures" / "scripts" / "h200"
RECORDED = json.loads((FOLDER / "peaks.json").read_text(encoding="utf-8"))
_FAST = ("flex_documents.py", "graph_capture.py")
REQUESTED = {"cuda_graphs.py": 0.03}
"""Share that the requested peak may differ: CUDA graphs keep copies that are counted a little longer."""


def predicted(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the peak of `memlint run` of the script, in the recorded version of PyTorch."""
    options = ["--gpu", "h200", "--torch", "2.11", "--select", "MEM0", "--output-format", "json"]
    command = [sys.executable, "-m", "memlint", "run", *options, str(FOLDER / record["script"]), *record["arguments"]]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    (workload,) = json.loads(done.stdout)["workloads"]
    assert workload["error"] is None
    peak: dict[str, Any] = workload["estimate"]["peak"]
    return peak


@pytest.mark.parametrize(
    "record",
    [pytest.param(each, marks=[] if each["script"] in _FAST else pytest.mark.slow) for each in RECORDED],
    ids=lambda record: " ".join([record["script"], *record["arguments"]]),
)
def test_a_script_takes_what_an_h200_took(record: dict[str, Any], tmp_path: Path) -> None:
    peak = predicted(record, tmp_path)
    share = REQUESTED.get(record["script"], 1e-4)
    assert peak["requested"]["estimate"] == pytest.approx(record["requested"], rel=share)
    assert peak["allocated"]["estimate"] == pytest.approx(record["allocated"], rel=max(share, 0.002))
    assert peak["reserved"]["estimate"] == pytest.approx(record["reserved"], rel=0.01)

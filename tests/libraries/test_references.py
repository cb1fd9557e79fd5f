"""What libraries do on the host, for real against `--gpu cpu`: PyTorch references of kernels, optimizers, 4-bit layers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.script.isolated import needs

ROOT = Path(__file__).parents[2]
TOLERANCE = 2048
"""Bytes: tables that a process makes once, and sums of a layer norm that each thread has."""


def _peaks(library: str, how: str) -> dict[str, tuple[int, int]]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.libraries.references", library, how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.strip().splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "library",
    [pytest.param(name, marks=needs(name)) for name in ("liger_kernel", "bitsandbytes", "torchao")],
)
def test_a_step_on_the_host_takes_what_is_predicted(library: str) -> None:
    real, predicted = (_peaks(library, how) for how in ("real", "predicted"))
    differing = {
        name: (taken, predicted[name])
        for name, (taken, _) in real.items()
        if not predicted[name][0] - TOLERANCE <= taken <= predicted[name][1] + TOLERANCE
    }
    assert len(real) >= 4
    assert differing == {}

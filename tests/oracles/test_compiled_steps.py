"""memlint's prediction of compiled steps on the host (`--gpu cpu --compile on`) against Inductor's own, really run.

A real step is compiled with a C++ compiler and runs in a process of its own; the prediction needs none.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import torch

from benchmarks.compiled import MODELS, ROOT, predicted
from memlint.base.patching import patched
from memlint.compile import requests

ONE_DNN = {"convnext"}
"""Models whose peak is in a convolution: certain copies by PyTorch, and others by oneDNN up to a bound."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles for the host with g++")
@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_step_on_the_host_takes_what_is_predicted(name: str) -> None:
    command = [sys.executable, "-m", "benchmarks.compiled", "--real", name]
    real = int(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()[-1])
    with patched([(torch, "compile", requests.compile_where_simulated)]):
        interval = predicted(name)
    assert interval.low <= real <= interval.high or interval.estimate == pytest.approx(real, rel=0.01)
    assert (interval.low < interval.high) == (name in ONE_DNN)

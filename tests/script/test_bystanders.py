"""Packages beside the training that need what is not there: data of nltk, and what `torch.jit.trace` records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.script.running import run_text, stdout_of, write

if TYPE_CHECKING:
    from pathlib import Path

TRAINING = """
    import torch
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.zeros(8, 4, device="cuda")
    model(x)
    {before}
    for _ in range(3):
        model(x).sum().backward()
        optimizer.step()
"""
WRITER = """
    import torch

    class SummaryWriter:
        def add_graph(self, model, x):
            torch.jit.trace(model, x)
"""
ANALYSIS = """
    import torch

    def _get_scoped_trace_graph(model, inputs, aliases):
        return torch.jit.trace(model, inputs).graph

    def count(model, x):
        return sum(1 for node in _get_scoped_trace_graph(model, x, {}).nodes())
"""
PUNKT = """
    class PunktTokenizer:
        def __init__(self):
            self.load_lang()

        def load_lang(self, lang="english"):
            raise LookupError(f"tokenizers/punkt_tab/{lang} not found")
"""


@pytest.mark.parametrize(
    ("module", "content", "before"),
    [
        ("tensorboardX.writer", WRITER, "writer.SummaryWriter().add_graph(model, x)"),
        ("fvcore.nn.jit_analysis", ANALYSIS, "print(jit_analysis.count(model, x))"),
        ("nltk.tokenize.punkt", PUNKT, "punkt.PunktTokenizer()"),
    ],
)
def test_a_training_goes_on_behind_a_package_that_lacks_what_it_needs(
    tmp_path: Path, module: str, content: str, before: str
) -> None:
    *folders, name = module.split(".")
    for number in range(len(folders)):
        (folder := tmp_path.joinpath(*folders[: number + 1])).mkdir()
        (folder / "__init__.py").touch()
    write(tmp_path.joinpath(*folders), content, f"{name}.py")
    checked = run_text(tmp_path, f"    from {'.'.join(folders)} import {name}\n" + TRAINING.format(before=before))
    (workload,) = checked.report.workloads
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")
    assert not any("passed over" in each.text for each in workload.assumptions)
    assert any("every full stop" in each.text for each in workload.assumptions) == (name == "punkt")
    assert stdout_of(checked).split() == (["0"] if name == "jit_analysis" else [])


def test_nvml_answers_for_the_simulated_gpu(tmp_path: Path) -> None:
    write(
        tmp_path, "def nvmlInit(): raise OSError('no driver')\ndef nvmlDeviceGetMemoryInfo(handle): ...\n", "pynvml.py"
    )
    text = "import pynvml, torch\npynvml.nvmlInit()\nmemory = pynvml.nvmlDeviceGetMemoryInfo(0)\n"
    checked = run_text(tmp_path, text + "print(memory.total == torch.cuda.mem_get_info()[1], memory.used > 0)\n")
    assert stdout_of(checked).split() == ["True", "True"]

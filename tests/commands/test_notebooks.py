"""Notebooks that are checked, and cells that a magic estimates."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from memlint import cli
from memlint.commands.check.notebooks import by_cell, write_program
from memlint.source.notebooks import program_of

pytestmark = pytest.mark.usefixtures("copied_pythons")

MODEL = """import torch
from torch import nn
%config InlineBackend.figure_format = 'svg'

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 4096)
        self.second = nn.Linear(4096, 8)

    def forward(self, x):
        return self.second(self.first(x).relu())
"""
SETUP = "model = Model()\noptimizer = torch.optim.AdamW(model.parameters())"
TRAINING = """model.cuda()
for step in range(100):
    optimizer.zero_grad()
    loss = model(torch.randn(4096, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
"""


def write(file, *cells):
    contents = [{"cell_type": "code", "source": text} for text in cells]
    contents.insert(0, {"cell_type": "markdown", "source": "# Training"})
    file.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": contents}))


def checked(*arguments, command="check"):
    result = CliRunner().invoke(cli.main, [command, "--output-format", "json", *arguments])
    return result, json.loads(result.stdout) if result.stdout else None


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_notebook_that_trains_runs_as_a_script_and_places_are_cells(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "train.ipynb", MODEL, SETUP, "!nvidia-smi\n" + TRAINING)
    result, report = checked("train.ipynb", command=command)
    assert result.exit_code == 0, result.output
    (workload,) = report["workloads"]
    assert (workload["target"], workload["batch"], workload["optimizer"]) == ("train.ipynb", 4096, "AdamW")
    peak = workload["estimate"]
    assert (peak["path"], peak["line"]) == ("train.ipynb:cell 2", 12)
    assert "_ipynb.py" not in result.output
    assert list(tmp_path.iterdir()) == [tmp_path / "train.ipynb"]


def test_a_notebook_runs_in_its_folder_with_its_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "sizes.py").write_text("ROWS = 48\n")
    sized = "import sys\nfrom sizes import ROWS\nassert sys.argv[1:] == ['--wide']\n"
    write(tmp_path / "books" / "train.ipynb", MODEL, SETUP, sized, TRAINING.replace("4096", "ROWS", 1))
    result, report = checked("books/train.ipynb", "--wide", command="run")
    assert result.exit_code == 0, result.output
    (workload,) = report["workloads"]
    assert (workload["target"], workload["batch"]) == ("books/train.ipynb --wide", 48)


def test_in_a_notebook_that_does_not_train_models_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    leak = "def evaluate(model, loader):\n    for x in loader:\n        print(model(x).sum().item())"
    write(tmp_path / "model.ipynb", MODEL, leak)
    result, report = checked("model.ipynb::Model", "--no-sweep", "--batch", "2")
    (workload,) = report["workloads"]
    assert (workload["target"], workload["batch"]) == ("model.ipynb::Model", 2)
    assert "_ipynb.py" not in result.output
    for arguments in (("--init",), ("--fix",)):
        refused = CliRunner().invoke(cli.main, ["check", "model.ipynb", *arguments])
        assert refused.exit_code == 2
        assert "notebook" in refused.output


def test_errors_stand_at_their_cell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "broken.ipynb", MODEL, "x = (")
    result, _report = checked("broken.ipynb")
    assert result.exit_code == 2
    assert "broken.ipynb:cell 3:1 is not valid Python" in result.output
    write(tmp_path / "failing.ipynb", MODEL, SETUP, "\nprint(1 / 0)\n" + TRAINING)
    result, report = checked("failing.ipynb")
    (workload,) = report["workloads"]
    assert any("failing.ipynb:cell 4" in json.dumps(each) for each in workload["assumptions"])  # it was passed over
    write(tmp_path / "failing.ipynb", MODEL, SETUP, "\nraise KeyboardInterrupt\n" + TRAINING)
    result, report = checked("failing.ipynb")
    assert "failing.ipynb:cell 4:2 in " in json.dumps(report)
    result, _report = checked("missing.ipynb")
    assert "missing.ipynb does not exist" in result.output


def test_places_in_texts_are_cells_too(tmp_path):
    written = write_program(program_of([("a.ipynb:cell 1", "x = 1\ny = 2")], tmp_path), "a.ipynb", "a", tmp_path)
    record = {
        "path": str(written.file),
        "line": 3,
        "message": f"made at a_ipynb.py:2 and {written.file}:3, in {written.file}",
        "others": [{"path": "b.py", "line": 3}],
    }
    assert by_cell(record, [written]) == {
        "path": "a.ipynb:cell 1",
        "line": 2,
        "message": "made at a.ipynb:cell 1:1 and a.ipynb:cell 1:2, in a.ipynb",
        "others": [{"path": "b.py", "line": 3}],
    }


@pytest.mark.slow
def test_a_kernel_estimates_a_cell_and_shows_it_as_a_page(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook()
    cells = [
        "%load_ext memlint\nimport memlint",
        MODEL,
        SETUP,
        "%%memlint\nraise ValueError('no data')",
        f"%%memlint --gpu rtx4090\n{TRAINING}",
        "step = _\nprint(step.workload.estimate.path, step.workload.gpu, model.first.weight.device, len(optimizer.state))",
        "memlint.estimate(model, torch.zeros(4096, 64), optimizer)",
        "print(_.workload.estimate.path)",
    ]
    notebook.cells = [nbformat.v4.new_code_cell(text) for text in cells]
    client.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [cell.outputs for cell in notebook.cells]
    for (shown,) in (outputs[4], outputs[6]):
        assert shown["data"]["text/html"].startswith('<iframe title="memlint"')
        assert re.match(r"<memlint: \w+ takes [\d.]+ [MG]iB, fits ", shown["data"]["text/plain"])
    assert outputs[5][0]["text"] == "In [2] rtx4090 cpu 0\n"
    assert outputs[7][0]["text"] == "In[2]\n"
    assert re.match(
        r"<memlint: cell takes .*, would fit .*, by a step of memlint's own: the script raised ValueError: no data>",
        outputs[3][0]["data"]["text/plain"],
    )

"""The command itself, with real processes on the host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from memlint.cli import main
from memlint.validate.measurement import Measurement

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("copied_pythons")

NET = """
import torch
from torch import nn

import memlint


def net(batch, width=32):
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 4)), torch.randn(batch, 16)


@memlint.workload(batch=4)
def clipped(batch):
    def step(model, inputs, optimizer):
        model(inputs["0"]).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return memlint.Declaration(*net(batch), step=step)


def broken(batch):
    raise ValueError("no such model")


def unfinished(batch):
    import a_package_nobody_has
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.memlint]\n")
    (tmp_path / "netfile.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def suite(project: Path, names: list[str], function: str = "net") -> None:
    tables = [
        f'[[workload]]\nname = "{name}"\ncpu = true\ntarget = "netfile.py::{function}"\narguments = {{ width = {32 + i} }}\n'
        for i, name in enumerate(names)
    ]
    (project / "suite.toml").write_text("\n".join(tables))


def files(project: Path) -> list[Path]:
    return sorted((project / "measured").rglob("*.json"))


def test_prediction_measurement_and_error_stand_side_by_side(project: Path) -> None:
    result = CliRunner().invoke(main, ["validate", "netfile.py", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["predicted", "measured", "error"] in rows
    (requested,) = (row for row in rows if row[:1] == ["requested"] and row[-1] == "exact")
    assert requested[1:3] == requested[3:5]
    assert {"forward", "backward", "optimizer", "gradient", "parameter"} <= {row[0] for row in rows if row}


def test_another_size_of_a_dimension_is_measured(project: Path) -> None:
    (project / "wide.py").write_text(
        "from netfile import net\n\ndef memlint_workload(batch, width=32):\n    return net(batch, width)\n"
    )
    result = CliRunner().invoke(main, ["validate", "wide.py", "--device", "cpu", "--dim", "width=64"])
    assert result.exit_code == 0, result.output
    assert "parameter 5.27 KiB 5.27 KiB exact" in " ".join(result.stdout.split())  # of 32: 2.64


def test_a_step_with_a_package_of_the_project_and_without_one_that_is_missing_is_estimated_and_measured(
    project: Path,
) -> None:
    (project / "pyproject.toml").write_text('[tool.memlint]\nstub = ["netfile"]\n')
    (project / "lib" / "mynets").mkdir(parents=True)
    (project / "lib" / "mynets" / "__init__.py").write_text(
        "from torch import nn\n\n\ndef head(): return nn.Linear(16, 4)\n"
    )
    (project / "drawn.py").write_text(
        "import netfile\nimport torch\nfrom mynets import head\n\n"
        "def memlint_workload(batch): return head(), torch.randn(batch, 16)\n"
    )
    result = CliRunner().invoke(main, ["validate", "drawn.py", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert "parameter 272 B 272 B exact" in " ".join(result.stdout.split())


def test_a_killed_suite_keeps_what_it_measured_and_goes_on_from_there(project: Path) -> None:
    suite(project, ["a", "b", "c"])
    command = [
        sys.executable, "-m", "memlint", "validate", "--suite", "suite.toml", "--device", "cpu",
        "--record", "measured", "--no-compare",
    ]  # fmt: skip
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not files(project) and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    kept = {file.name: file.read_bytes() for file in files(project)}
    assert kept, "nothing was recorded within two minutes"
    for file in files(project):
        Measurement.read(file)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {file.name for file in files(project)} == {"a.json", "b.json", "c.json"}
    assert {file.name: file.read_bytes() for file in files(project) if file.name in kept} == kept
    assert done.stderr.count("recorded before") == len(kept)


def test_what_cannot_run_is_named_and_the_rest_is_recorded(project: Path) -> None:
    suite(project, ["a"])
    more = '[[workload]]\nname = "{0}"\ncpu = true\ntarget = "netfile.py::{0}"\n'
    with (project / "suite.toml").open("a") as file:
        file.write("\n" + more.format("broken") + more.format("unfinished") + more.format("clipped"))
    arguments = ["validate", "--suite", "suite.toml", "--device", "cpu", "--record", "measured"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "[2/4] broken: failed: broken cannot be built: ValueError: no such model" in result.stderr
    assert "[3/4] unfinished: skipped: the package a_package_nobody_has is not installed" in result.stderr
    assert [file.stem for file in files(project)] == ["a", "clipped"]
    assert "cpu, torch" in result.stdout


def test_without_a_gpu_the_device_is_an_error(project: Path) -> None:
    result = CliRunner().invoke(main, ["validate", "netfile.py", "--record", "measured"])
    assert result.exit_code == 2
    assert "--device cuda" in result.stderr


def test_a_file_without_a_model_is_an_error(project: Path) -> None:
    (project / "empty.py").write_text("x = 1\n")
    result = CliRunner().invoke(main, ["validate", "empty.py", "--device", "cpu"])
    assert result.exit_code == 2
    assert "no model found" in result.stderr

"""Settings of a launcher before its script begins: variables, search path, and those of accelerate's config."""

from __future__ import annotations

import os
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest
import torch.distributed.run

from memlint.base.errors import WorkloadError
from memlint.commands.run.run import run, started_by
from memlint.script.launching import launched
from memlint.targets.script import Script
from tests.script.isolated import needs
from tests.script.running import OPTIONS, run_script, stdout_of, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(os, "environ", os.environ.copy())


def accelerate(monkeypatch: pytest.MonkeyPatch, launch_command: Any) -> None:
    """Put a launcher in the place of accelerate's."""
    launch: Any = types.ModuleType("accelerate.commands.launch")
    launch.launch_command_parser = lambda: types.SimpleNamespace(parse_args=lambda words: words)
    launch.launch_command = launch_command
    for name, module in {"accelerate": launch, "accelerate.commands": launch, launch.__name__: launch}.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_variables_of_the_command_line_are_set(tmp_path: Path) -> None:
    variables = (("ENTITY_OF_TEST", "mine"), ("PYTHONPATH", str(tmp_path)))
    script = Script(name="train", path="train.py", variables=variables)
    assert launched(script) == script
    assert os.environ["ENTITY_OF_TEST"] == "mine"
    assert sys.path[1] == str(tmp_path)


def test_accelerate_decides_on_processes_and_variables_and_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[list[str]] = []

    def launch_command(words: list[str]) -> None:
        heard.append(words)
        os.environ["ACCELERATE_USE_FSDP"] = "true"
        torch.distributed.run.run(types.SimpleNamespace(nproc_per_node="4", nnodes="2"))
        raise AssertionError("it would have started processes")

    accelerate(monkeypatch, launch_command)
    script = Script(name="t", path="/p/t.py", arguments=("--lr", "1"), accelerate=("--config_file", "a.yaml"))
    assert launched(script).ranks == 8
    assert heard == [["--config_file", "a.yaml", "/p/t.py", "--lr", "1"]]
    assert os.environ["ACCELERATE_USE_FSDP"] == "true"
    assert launched(script.model_copy(update={"ranks": 2})).ranks == 2


def test_one_process_of_accelerate_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch_command(_words: list[str]) -> None:
        import subprocess

        subprocess.Popen(["python"], env={**os.environ, "ACCELERATE_MIXED_PRECISION": "bf16"})

    accelerate(monkeypatch, launch_command)
    assert launched(Script(name="t", module="p.t", accelerate=())).ranks is None
    assert os.environ["ACCELERATE_MIXED_PRECISION"] == "bf16"


def test_a_config_that_accelerate_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch_command(_words: list[str]) -> None:
        raise ValueError("You need to use at least 2 processes")

    accelerate(monkeypatch, launch_command)
    with pytest.raises(WorkloadError, match="refuses: You need to use at least 2 processes"):
        launched(Script(name="t", path="t.py", accelerate=("--multi_gpu",)))


def test_configs_of_the_project_are_named_where_the_one_that_is_typed_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch_command(_words: list[str]) -> None:
        raise ValueError("path/to/your/config does not exist")

    accelerate(monkeypatch, launch_command)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "accelerate_configs").mkdir()
    (tmp_path / "accelerate_configs/one.yaml").touch()
    with pytest.raises(WorkloadError, match="refuses: path/to/your/config does not exist") as caught:
        launched(Script(name="t", path="t.py", accelerate=("--config_file", "path/to/your/config")))
    assert caught.value.hint == "Correct its options or its config. The project has accelerate_configs/one.yaml."


CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 8
machine_rank: 0
fsdp_config:
  fsdp_auto_wrap_policy: SIZE_BASED_WRAP
  fsdp_min_num_params: 1000
  fsdp_sharding_strategy: FULL_SHARD
"""


@needs("accelerate")
@pytest.mark.slow
def test_the_settings_of_a_config_of_accelerate_hold(tmp_path: Path) -> None:
    text = """
        import torch
        from accelerate import Accelerator
        accelerator = Accelerator()
        print(accelerator.state.mixed_precision, accelerator.num_processes)
        model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256))
        model = accelerator.prepare(model)
        optimizer = accelerator.prepare(torch.optim.AdamW(model.parameters()))
        while True:
            accelerator.backward(model(torch.randn(8, 256, device=accelerator.device)).mean())
            optimizer.step()
            optimizer.zero_grad()
    """
    (tmp_path / "fsdp.yaml").write_text(CONFIG)
    checked = run_script(write(tmp_path, text), accelerate=("--config_file", str(tmp_path / "fsdp.yaml")))
    (workload,) = checked.report.workloads
    assert workload.error is None, workload.error
    assert stdout_of(checked).split() == ["bf16", "8"]
    assert workload.dtype == "bf16-amp"
    assert workload.estimate is not None
    assert workload.estimate.categories["communication"] > 0
    assert workload.estimate.categories["parameter"] < 2 * 257 * 256 * 4 / 2  # an eighth, where one layer is gathered


TRAINS = """
import torch

def main():
    print(len(open("words.txt").read()) > 0)
    model = torch.nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.randn(8, 64, device="cuda")).sum().backward()
        optimizer.step()
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages with one that trains, and its command on the path."""
    packages, commands = tmp_path / "site-packages", tmp_path / "bin"
    for folder in (packages / "hearing", packages / "hearing-1.0.dist-info", commands):
        folder.mkdir(parents=True)
    (packages / "hearing/__init__.py").write_text(TRAINS)
    (packages / "hearing/__main__.py").write_text("from hearing import main\nmain()\n")
    (packages / "hearing-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: hearing\nVersion: 1.0\n")
    (packages / "hearing-1.0.dist-info/entry_points.txt").write_text("[console_scripts]\nhear = hearing:main\n")
    (commands / "hear").write_text(f"#!{sys.executable}\nimport sys\nfrom hearing import main\nsys.exit(main())\n")
    (commands / "hear").chmod(0o755)
    (tmp_path / "memlint.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("PATH", str(commands), prepend=os.pathsep)
    return tmp_path


@pytest.mark.parametrize("words", [("-m", "hearing"), ("hear",)])
def test_a_package_that_is_run_as_a_program_is_the_users_code(installed: Path, words: tuple[str, ...]) -> None:
    is_module = words[0] == "-m"
    script = Script(**started_by(words[is_module:], is_module=is_module))
    checked = run(script, {"select": ("MEM010",)}, OPTIONS)
    (workload,) = checked.report.workloads
    assert workload.error is None, workload.error
    assert workload.name == words[-1]
    assert stdout_of(checked).split() == ["True"]  # of a file that is made up for the user's code alone
    assert workload.script is not None
    assert workload.script.steps == 2
    assert workload.batch == 8


def test_a_command_that_no_package_installs_is_none(installed: Path) -> None:
    (installed / "bin/other").write_text("#!/bin/sh\n")
    (installed / "bin/other").chmod(0o755)
    assert started_by(["other"], is_module=False)["path"] == "other"
    assert started_by(["hear"], is_module=False)["module"] == "hearing:main"
    (installed / "hear").write_text("print()\n")
    assert started_by(["hear"], is_module=False)["path"] == "hear"


def test_a_package_that_accelerate_wants_is_named_with_all_that_the_script_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch_command(_words: list[str]) -> None:
        raise ImportError("Absent is not installed => run `pip3 install absent_engine` or build it from source.")

    accelerate(monkeypatch, launch_command)
    script = Script(name="t", path=str(write(tmp_path, "import absent_rows")), accelerate=())
    with pytest.raises(WorkloadError, match="`accelerate launch` refuses: Absent is not installed") as caught:
        launched(script)
    assert "pip install absent-engine absent-rows;" in caught.value.hint

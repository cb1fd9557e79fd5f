"""Files that ask at import whether there is a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("copied_pythons")

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(256, 256, dtype=DTYPE, device=DEVICE)

    def forward(self, x):
        return self.linear(x.to(DTYPE))

def memlint_workload():
    return Model(), {"x": torch.rand(64, 256)}
"""
ESTIMATE_ALONE = ("--no-cache", "--no-sweep", "--select", "MEM010")
TEXT = "a GPU is present while the file is imported, which checks for one"


def checked(folder: Path, head: str, *options: str) -> dict[str, Any]:
    (folder / "model.py").write_text(f"import torch\n{head}\n{MODEL}")
    return estimated(folder, "model.py", *options)


def estimated(folder: Path, target: str, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "memlint", "check", target, *ESTIMATE_ALONE, "--output-format", "json", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    (workload,) = json.loads(done.stdout)["workloads"]
    assert workload["error"] is None
    return workload


def parameter_dtypes(workload: dict[str, Any]) -> set[str]:
    return {each["dtype"] for each in workload["estimate"]["at_peak"] if each["category"] == "parameter"}


def requested_bytes(workload: dict[str, Any]) -> int:
    return int(workload["estimate"]["peak"]["requested"]["estimate"])


def lines_that_asked(workload: dict[str, Any]) -> list[int]:
    return [each["line"] for each in workload["assumptions"] if each["text"] == TEXT]


def test_a_dtype_that_depends_on_the_gpu_is_that_of_the_gpu(tmp_path: Path) -> None:
    head = """DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else torch.float32"""
    workload = checked(tmp_path, head)
    assert parameter_dtypes(workload) == {"bfloat16"}
    assert lines_that_asked(workload) == [2, 3]


def test_the_gpu_that_was_asked_for_answers(tmp_path: Path) -> None:
    head = 'DEVICE = "cuda"\nDTYPE = torch.bfloat16 if torch.cuda.get_device_capability() >= (9, 0) else torch.float32'
    head += " if torch.cuda.is_available() else torch.float64"
    assert parameter_dtypes(checked(tmp_path, head, "--gpu", "h100-80gb")) == {"bfloat16"}
    assert parameter_dtypes(checked(tmp_path, head)) == {"float32"}


def test_a_file_that_makes_tensors_there_at_import_finds_one_too(tmp_path: Path) -> None:
    (tmp_path / "places.py").write_text('import torch\nDEVICE = "cuda" if torch.cuda.is_available() else "cpu"\n')
    head = "from places import DEVICE\nDTYPE = torch.float32\nTABLE = torch.zeros(4, device=DEVICE)"
    workload = checked(tmp_path, head)
    assert parameter_dtypes(workload) == {"float32"}
    assert lines_that_asked(workload) == [2]


def test_a_file_that_fails_on_a_gpu_is_told_of_none(tmp_path: Path) -> None:
    head = """DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.float32
TABLE = torch.zeros(4, device=DEVICE)
assert DEVICE == "cpu"
"""
    workload = checked(tmp_path, head)
    assert parameter_dtypes(workload) == {"float32"}
    assert lines_that_asked(workload) == []


HELD = "what is made on the GPU when the file is imported stays there while the step runs"
HEAD = 'DTYPE, DEVICE = torch.float32, "cpu"\n'


@pytest.mark.parametrize(
    "statement",
    [
        'MASK = torch.zeros(1 << 20, device="cuda")',
        'MASK = torch.zeros(1 << 20).to("cuda")',
        "MASK = torch.nn.Linear(1 << 20, 1, bias=False).cuda()",
        "torch.cuda.Stream(); MASK = torch.cuda.FloatTensor(1 << 20)",
    ],
)
def test_what_the_file_makes_on_the_gpu_is_there_while_the_step_runs(tmp_path: Path, statement: str) -> None:
    without = requested_bytes(checked(tmp_path, HEAD))
    workload = checked(tmp_path, HEAD + statement)
    assert requested_bytes(workload) == without + (4 << 20)
    (held,) = [each for each in workload["estimate"]["at_peak"] if each["category"] == "other"]
    assert (held["line"], held["nbytes"]) == (3, 4 << 20)
    assert [each["line"] for each in workload["assumptions"] if each["text"] == HELD] == [3]


def test_a_tensor_of_the_file_that_the_model_has_as_a_buffer_is_one(tmp_path: Path) -> None:
    head = (
        HEAD
        + """MASK = torch.zeros(1 << 20, device="cuda")
def build():
    model = Model()
    model.register_buffer("mask", MASK)
    return model, {"x": torch.rand(64, 256)}
"""
    )
    (tmp_path / "model.py").write_text(f"import torch\n{head}\n{MODEL}")
    categories = [each["category"] for each in estimated(tmp_path, "model.py::build")["estimate"]["at_peak"]]
    assert "buffer" in categories
    assert "other" not in categories


@pytest.mark.parametrize("target", ["model.py::NET", "model.py::Model"])
def test_a_model_that_the_file_makes_there_is_the_one_that_is_estimated(tmp_path: Path, target: str) -> None:
    def requested(after: str) -> int:
        (tmp_path / "model.py").write_text(f"import torch\n{HEAD}\n{MODEL}\n{after}\n")
        return requested_bytes(estimated(tmp_path, target, "--mode", "inference"))

    alone = requested("NET = Model()")
    assert requested("NET = Model().cuda()") == alone
    assert requested("NET, OTHER = Model().cuda(), Model().cuda()") == alone + 4 * (256 * 256 + 256)


def test_on_the_host_there_is_none(tmp_path: Path) -> None:
    head = 'DEVICE = "cpu"\nDTYPE = torch.float64 if torch.cuda.is_available() else torch.float32'
    workload = checked(tmp_path, head, "--gpu", "cpu")
    assert parameter_dtypes(workload) == {"float32"}
    assert lines_that_asked(workload) == []


def test_a_file_that_asks_for_the_version_of_cuda_at_import_is_told_one(tmp_path: Path) -> None:
    head = "DEVICE = 'cpu'\nDTYPE = torch.bfloat16 if int(torch.version.cuda.split('.')[0]) >= 11 else torch.float32"
    assert parameter_dtypes(checked(tmp_path, head)) == {"bfloat16"}

"""Files that ask at import whether there is a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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
TEXT = "there is a GPU when the file is imported, as it asks there"


def checked(folder: Path, head: str, *options: str) -> dict[str, Any]:
    (folder / "model.py").write_text(f"import torch\n{head}\n{MODEL}")
    command = [sys.executable, "-m", "memlint", "check", "model.py", "--no-cache", "--output-format", "json", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    (workload,) = json.loads(done.stdout)["workloads"]
    assert workload["error"] is None
    return workload


def parameter_dtypes(workload: dict[str, Any]) -> set[str]:
    return {each["dtype"] for each in workload["estimate"]["at_peak"] if each["category"] == "parameter"}


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


def test_a_file_that_makes_tensors_there_at_import_is_told_of_none(tmp_path: Path) -> None:
    (tmp_path / "places.py").write_text('import torch\nDEVICE = "cuda" if torch.cuda.is_available() else "cpu"\n')
    head = "from places import DEVICE\nDTYPE = torch.float32\nTABLE = torch.zeros(4, device=DEVICE)"
    workload = checked(tmp_path, head)
    assert parameter_dtypes(workload) == {"float32"}
    assert lines_that_asked(workload) == []


def test_on_the_host_there_is_none(tmp_path: Path) -> None:
    head = 'DEVICE = "cpu"\nDTYPE = torch.float64 if torch.cuda.is_available() else torch.float32'
    workload = checked(tmp_path, head, "--gpu", "cpu")
    assert parameter_dtypes(workload) == {"float32"}
    assert lines_that_asked(workload) == []

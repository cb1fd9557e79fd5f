"""`memlint check` as a user runs it, on models that are fine and models that are not."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent

import jsonschema
import pytest

from memlint.report.schema import schema_text

pytest.importorskip("torch")

MODEL = """
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(512, 512)

    def forward(self, x):
        return self.layer(x)
"""


@pytest.fixture
def check(tmp_path):
    def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "model.py").write_text(dedent(code))
        command = [sys.executable, "-m", "memlint", "check", "--no-sweep", *(arguments or ("model.py",))]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_a_model_gets_its_verdict_and_no_finding(check):
    done = check(MODEL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("model.py::Model needs ")
    assert done.stdout.splitlines()[0].endswith(": fits")


def test_a_real_report_keeps_to_the_schema_and_names_no_place_of_this_machine(check, tmp_path):
    done = check(MODEL, "model.py::Model", "--output-format", "json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(schema_text()))
    assert str(tmp_path) not in done.stdout
    assert document["workloads"][0]["estimate"]["peak"]["requested"]["estimate"] >= 4 * 4 * 512 * 512


def test_a_budget_that_is_exceeded_is_a_finding(check):
    done = check(MODEL, "model.py", "--budget", "100MiB")
    assert done.returncode == 1
    assert "budget 100.0 MiB: exceeded" in done.stdout


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\n", "no torch.nn.Module found"),
        ("import no_such_package\n", "no_such_package"),
        (
            MODEL.replace("super().__init__()", "super().__init__()\n        raise ValueError('no such width')"),
            "no such width",
        ),
        (MODEL.replace("def __init__(self)", "def __init__(self, size)"), "size"),
        (MODEL.replace("self.layer(x)", "self.layer(x).view(7, 7, 7)"), "(model.py:10)"),
        (MODEL + "import os\nos._exit(3)\n", "exit status 3"),
        (MODEL + "def broken(:\n", "is not valid Python"),
        (MODEL + "import sys\nsys.exit(2)\n", "guard its script part with `if __name__ == '__main__':`"),
        (MODEL + "def endless():\n    endless()\n\nendless()\n", " lines ..."),
    ],
)
def test_code_that_cannot_be_analysed_is_one_clear_error(check, code, message):
    done = check(code)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout.startswith("error: model.py")
    assert message in done.stdout
    assert "help: " in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_name_that_is_no_text_is_escaped(check):
    declared = (
        "import memlint\n\n@memlint.workload(name='caf\\udce9')\ndef build():\n    return torch.nn.Linear(8, 8)\n"
    )
    done = check("import torch\n" + declared)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(r"caf\udce9 (model.py::build) needs ")


def test_a_declaration_made_with_init_gives_the_same_estimate(check, tmp_path):
    declared = check(MODEL, "model.py", "--init")
    assert declared.returncode == 0, declared.stderr
    before = json.loads(check(MODEL, "model.py", "--output-format", "json").stdout)
    (tmp_path / "pyproject.toml").write_text(declared.stdout)
    after = json.loads(check(MODEL, ".", "--output-format", "json").stdout)
    assert after["workloads"][0]["origin"] == "config"
    assert after["workloads"][0]["estimate"]["peak"] == before["workloads"][0]["estimate"]["peak"]

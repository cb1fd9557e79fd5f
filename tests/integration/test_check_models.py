"""`memlint check` as a user runs it, on models that are fine and models that are not."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent

import jsonschema
import pytest

from memlint.report.schema import schema_text
from tests.integration.commands import memlint

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("copied_pythons")

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
        return memlint(tmp_path, "check", "--no-sweep", *(arguments or ("model.py",)))

    return run


def test_a_model_gets_its_verdict_and_no_finding(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    command = [sys.executable, "-m", "memlint", "check", "--no-sweep", "model.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
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
        (MODEL.replace("def __init__(self)", "def __init__(self, encoder)"), "encoder"),
        (MODEL.replace("self.layer(x)", "self.layer(x).view(7, 7, 7)"), "(model.py:10)"),
        (MODEL.replace("return self.layer(x)", "error = ValueError('odd')\n        raise error from error"), "odd"),
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


def test_a_model_that_runs_without_gradients_is_not_trained(check):
    code = "import torch\n" + MODEL.replace("    def forward", "    @torch.inference_mode()\n    def forward")
    done = check(code, "--output-format", "json", "model.py")
    (workload,) = json.loads(done.stdout)["workloads"]
    assert (workload["mode"], workload["error"]) == ("inference", None)
    texts = [each["text"] for each in workload["assumptions"]]
    assert "mode inference: forward runs under torch.inference_mode()" in texts
    assert not any("optimizer" in each for each in texts)


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


def test_a_script_is_named_as_one_and_its_training_never_runs(check, tmp_path):
    (tmp_path / "train.py").write_text(
        "import os\nimport torch\nos.makedirs('out')\nnet = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(net.parameters())\n"
        "for _ in range(3):\n    net(torch.zeros(1, 4)).sum().backward()\n    optimizer.step()\n"
    )
    done = check("", "train.py")
    assert done.returncode == 2
    assert "train.py:7" in done.stdout
    assert "memlint run train.py" in done.stdout
    assert not (tmp_path / "out").exists()


def test_of_a_script_that_calls_no_model_that_is_said(check, tmp_path):
    (tmp_path / "train.py").write_text("import torch\n\ndef main(): ...\n\nif __name__ == '__main__':\n    main()\n")
    said = "Then type memlint run train.py: the script ran to its end, and no model was called on the GPU."
    assert said in check("", "train.py").stdout


def test_in_a_folder_without_a_declared_model_the_training_that_a_document_types_is_named(check, tmp_path):
    (tmp_path / "train.py").write_text("import torch\nif __name__ == '__main__':\n    loss.backward()\n")
    (tmp_path / "eval.py").write_text("import torch\nmodel.eval()\n")
    (tmp_path / "README.md").write_text("```\npython eval.py --all\npython train.py --depth 3\n```\n")
    done = check("", ".")
    assert "help: Type memlint run train.py --depth 3, or memlint check with the file of a model." in done.stdout
    assert done.returncode == 0


def test_what_argparse_says_is_said(check):
    done = check(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--data', required=True)\n"
        f"options = parser.parse_args()\n{MODEL}"
    )
    assert "the following arguments are required: --data" in done.stdout
    assert "SystemExit" not in done.stdout


@pytest.mark.parametrize("is_repository", [True, False])
def test_a_module_named_like_its_package_is_found_in_the_package(check, tmp_path, is_repository):
    package = tmp_path / "vit"
    package.mkdir()
    if is_repository:
        (tmp_path / ".git").mkdir()
    (package / "__init__.py").write_text("from vit.vit import Net\n")
    (package / "attend.py").write_text("WIDTH = 64\n")
    (package / "vit.py").write_text(
        "from torch import nn\nfrom vit.attend import WIDTH\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.layer = nn.Linear(WIDTH, WIDTH)\n\n"
        "    def forward(self, x):\n        return self.layer(x)\n"
    )
    done = check("", "vit/vit.py")
    assert done.returncode == 0, done.stdout

"""`--init` of what cannot be analysed: a declaration with the model's own names, which works once it is filled in."""

from __future__ import annotations

import tomllib

import pytest

from tests.integration import commands

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("copied_pythons")

HEAD = "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"
NEEDS = (
    HEAD
    + """\
    def __init__(self, in_channels, width: int, num_classes):
        super().__init__()
        self.stem = nn.Conv2d(in_channels, width, 3)
        self.head = nn.Linear(width, num_classes)

    def forward(self, image):
        return self.head(self.stem(image).mean((2, 3)))
"""
)
REFUSES = (
    HEAD
    + """\
    def __init__(self, width, depth):
        super().__init__()
        assert width == 7 * depth

    def forward(self, tokens, mask): ...
"""
)
TAKES_ODD = (
    HEAD
    + """\
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(24, 24)

    def forward(self, points, weights):
        assert weights.shape == (5, 7, 11, 13)
        return self.layer(points)
"""
)
TAKES_MODULE = (
    HEAD
    + """\
    def __init__(self, encoder: nn.Module, num_classes):
        super().__init__()
        self.encoder = encoder

    def forward(self, image):
        return self.encoder(image)
"""
)


@pytest.fixture
def memlint(tmp_path):
    def run(code, *arguments):
        (tmp_path / "model.py").write_text(code)
        return commands.memlint(tmp_path, "check", "--no-sweep", *arguments)

    return run


def table(text):
    (workload,) = tomllib.loads(text)["tool"]["memlint"]["workload"]
    return workload


def test_arguments_are_guessed_by_name_and_the_declaration_runs_as_it_is(memlint, tmp_path):
    done = memlint(NEEDS, "model.py", "--init")
    assert "# sizes of the model: in_channels=3, width=512, num_classes=10" in done.stdout
    workload = table(done.stdout)
    assert workload["arguments"] == {"in_channels": 3, "width": 512, "num_classes": 10}
    assert workload["inputs"]["image"]["shape"] == ["batch", 3, 224, 224]
    (tmp_path / "pyproject.toml").write_text(done.stdout)
    assert "needs" in memlint(NEEDS, "model.py").stdout.splitlines()[0]


def test_a_model_that_cannot_be_built_gets_one_with_its_names(memlint):
    workload = table(memlint(REFUSES, "model.py", "--init").stdout)
    assert workload["arguments"] == {"width": 512, "depth": 6}
    assert list(workload["inputs"]) == ["tokens", "mask"]


def test_inputs_that_are_not_found_are_named_in_the_hint_and_in_the_declaration(memlint):
    done = memlint(TAKES_ODD, "model.py", "--init")
    workload = table(done.stdout)
    assert list(workload["inputs"]) == ["points", "weights"]
    assert "inputs = { points = { shape = " in done.stderr


def test_an_argument_that_is_no_number_gives_a_function_to_be_filled_in(memlint):
    done = memlint(TAKES_MODULE, "model.py", "--init")
    assert "def memlint_workload(batch):\n    return Net(encoder=..., num_classes=10), {" in done.stdout
    compile(done.stdout, "model.py", "exec")


TAKES_SETTINGS = (
    HEAD
    + """\
    def __init__(self, hparams, act):
        super().__init__()
        self.layer = nn.Linear(hparams.width, hparams.width)

    def forward(self, x):
        return self.layer(x)
"""
)
TRAINS = """
import argparse
import torch
from model import Net
parser = argparse.ArgumentParser()
parser.add_argument("--width", default=24)
args = parser.parse_args()
Net(args, torch.nn.ReLU())
loss.backward()
"""


def test_settings_of_a_command_line_give_a_function_that_runs_in_the_models_file(memlint, tmp_path):
    (tmp_path / "train.py").write_text(TRAINS)
    done = memlint(TAKES_SETTINGS, "model.py", "--init")
    assert "SimpleNamespace(**{'width': 24})" in done.stdout
    again = memlint(f"{TAKES_SETTINGS}\n{done.stdout}", "model.py", "--output-format=concise", "-v")
    assert again.returncode != 2, again.stderr
    assert "24" in done.stdout.rpartition("return")[2]


def test_the_message_names_the_command_that_writes_it(memlint):
    assert "memlint check model.py --init writes a declaration" in memlint(REFUSES, "model.py").stdout

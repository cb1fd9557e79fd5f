"""Parts that a script freezes: in `check` of its model, and in its own steps, where it frees them later."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Any

import pytest

from memlint.script.frozen_parts import frees_later, frozen_parts
from tests.integration.commands import memlint

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("copied_pythons")

MODEL = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1))
        self.head = nn.Linear(64, num_classes)

    def forward(self, x):
        return self.head(self.backbone(x).mean((2, 3)))
"""
SCRIPT = """
import torch
from torch import nn
from model import Net

{before}
model = Net(7).cuda()
for parameter in model.backbone.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(3):
    {line}
    for _ in range(100):
        x, y = torch.rand(64, 3, 64, 64, device="cuda"), torch.zeros(64, dtype=torch.long, device="cuda")
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
FREES = "if epoch == 1: model.backbone.requires_grad_(True)"
HEAD = 4 * (64 * 7 + 7)
"""Bytes of the parameters of the head."""


def answered(folder: Path, line: str, *command: str, before: str = "") -> dict[str, Any]:
    """The only Workload of a command on a project whose training loop has this line."""
    (folder / "pyproject.toml").write_text("[tool.memlint]\n")
    (folder / "model.py").write_text(MODEL)
    (folder / "train.py").write_text(SCRIPT.format(line=line, before=before))
    name, *arguments = command
    done = memlint(folder, name, "--output-format", "json", *arguments)
    (workload,) = json.loads(done.stdout)["workloads"]
    return dict(workload)


def test_a_model_has_no_gradients_and_no_optimizer_state_where_its_script_freezes_it(tmp_path):
    workload = answered(tmp_path, "pass", "check", "model.py", "--no-sweep")
    assert "frozen, as the script has it: backbone" in [each["text"] for each in workload["assumptions"]]
    state = workload["estimate"]["categories"]["optimizer_state"]
    assert 2 * HEAD <= state <= 2 * HEAD + 64, "two moments of the head, and its counts of steps"


def test_a_model_that_is_freed_later_is_taken_as_free(tmp_path):
    workload = answered(tmp_path, FREES, "check", "model.py", "--no-sweep")
    assert workload["built_by"].endswith("it frees what it has frozen later, which is taken as free from the start")
    assert workload["estimate"]["categories"]["optimizer_state"] > 64 * HEAD


@pytest.mark.parametrize(("line", "frees"), [("pass", False), (FREES, True)])
def test_the_first_steps_of_a_script_say_that_later_ones_take_more(tmp_path, line, frees):
    workload = answered(tmp_path, line, "run", "train.py")
    assert workload["script"].get("frees_later", False) is frees


def test_the_batch_with_which_a_script_goes_on_after_it_frees_counts(tmp_path):
    line = "if epoch == 1: batch_size = unfrozen_batch; model.backbone.requires_grad_(True)"
    before = "unfrozen_batch = 16\nloader = torch.utils.data.DataLoader(range(64), batch_size=64)"
    workload = answered(tmp_path, line, "check", "model.py", "--no-sweep", before=before)
    assert workload["estimate"]["categories"]["input"] // (3 * 64 * 64 * 4) == 16
    assert "batch 16: unfrozen_batch = 16" in [each["text"] for each in workload["assumptions"]]


def test_the_outermost_frozen_modules_and_parameters_are_named():
    model = torch.nn.ModuleDict({"encoder": torch.nn.Linear(2, 2), "head": torch.nn.Linear(2, 2)})
    assert frozen_parts(model) == ()
    model["encoder"].requires_grad_(False)
    model["head"].bias.requires_grad_(False)
    assert frozen_parts(model) == ("encoder", "head.bias")
    assert frozen_parts(model.requires_grad_(False)) == (), "it waits for its turn"


@pytest.mark.parametrize(
    ("statement", "frees"),
    [
        ("model.unfreeze_backbone()", True),
        ("p.requires_grad = True", True),
        ("model.requires_grad_()", True),
        ("p.requires_grad = False", False),
        ("model.requires_grad_(False)", False),
    ],
)
def test_a_line_that_frees_stands_under_a_condition_in_a_loop(statement, frees):
    assert frees_later([ast.parse(f"for epoch in epochs:\n  if epoch > 3:\n    {statement}")]) is frees
    assert not frees_later([ast.parse(statement)])
    for function in ("unfreeze", "__init__"):
        assert not frees_later([ast.parse(f"def {function}():\n  for p in ps:\n    if p:\n      {statement}")])
    assert not frees_later([ast.parse(f"for n, p in model.named_parameters():\n  if n:\n    {statement}")])

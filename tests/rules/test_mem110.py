"""MEM110: copies that are not needed, against the same program without them, and copies that are."""

import pytest
from memlint_rules.m1_activations.mem110_redundant_copy import RedundantCopy

from memlint.lint.rule import Case
from tests.rules.test_cases import analysed, peak

RULE = RedundantCopy()
SOURCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(512, 512)
        self.second = nn.Linear(512, 512)

    def forward(self, x):
        {body}


def memlint_workload():
    return Model(), torch.randn(8192, 512)
"""
REDUNDANT = {
    "of a saved activation": ("return self.second(self.first(x).tanh(){copy})", ".clone()"),
    "of a residual": ("h = self.first(x)\n        r = h{copy}\n        return self.second(h.relu()) + r", ".clone()"),
    "of what is used beside it": ("h = self.first(x).tanh()\n        return self.second(h{copy}) * h", ".clone()"),
    "by a cast": ("return self.second(self.first(x).tanh(){copy})", ".to(torch.float32, copy=True)"),
    "twice": ("return self.second(self.first(x).tanh(){copy})", ".clone().clone()"),
    "cut from the graph": ("h = self.first(x).tanh()\n        return self.second(h) * h.detach(){copy}", ".clone()"),
    "of an input": ("return self.second(x{copy}.tanh())", ".clone()"),
}
NEEDED = {
    "the copy is written to": "h = self.first(x)\n        return self.second(h.clone().mul_(2)) + h",
    "the original is written to": "h = self.first(x)\n        r = h.clone()\n        return self.second(h.mul_(2)) + r",
    "a part of a larger tensor": "return self.second(self.first(x).repeat(2, 1)[:8192].clone())",
    "another layout": "return self.second(self.first(x).T.clone(memory_format=torch.contiguous_format).T.relu())",
    "another dtype": "return self.second(self.first(x).to(torch.float64).to(torch.float32))",
    "repeat of more than size 1": "return self.second(self.first(x) * self.first.bias.view(2, 256).repeat(1, 2)[:1])",
}


def result(file, body):
    return analysed(file, RULE, Case(source=SOURCE.format(body=body)))


@pytest.mark.parametrize(("body", "copy"), REDUNDANT.values(), ids=REDUNDANT.keys())
def test_the_saving_is_what_the_program_without_the_copy_takes_less_to_the_byte(tmp_path, body, copy):
    before = result(tmp_path / "with_copy.py", body.format(copy=copy))
    after = result(tmp_path / "without_copy.py", body.format(copy=""))
    (finding,) = before.findings
    assert peak(before) + finding.peak_change == peak(after)
    assert after.findings == []


def test_a_copy_in_an_installed_package_is_left_out(tmp_path):
    package = tmp_path / "site-packages"
    package.mkdir()
    body, copy = REDUNDANT["of a residual"]
    assert result(package / "library.py", body.format(copy=copy)).findings == []


@pytest.mark.parametrize("body", NEEDED.values(), ids=NEEDED.keys())
def test_copies_that_are_needed_are_left_alone(tmp_path, body):
    assert result(tmp_path / "model.py", body).findings == []

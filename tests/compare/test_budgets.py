"""The whole way of a budget: from the configuration of each project, with real traces, to the comparison."""

from __future__ import annotations

import pytest

from memlint.commands.check.check import check
from memlint.commands.check.targets import CheckOptions
from memlint.compare.changes import compare
from memlint.report.model import Budget

pytestmark = pytest.mark.usefixtures("copied_pythons")

MODEL = """
import torch
import memlint


@memlint.workload(batch=2, gpu="a100-80gb", mode="inference")
def lin(batch):
    return torch.nn.Linear(8, 8), torch.randn(batch, 8)
"""


def test_each_project_has_its_own_budget_unless_the_command_line_has_one(tmp_path, monkeypatch):
    for name, budget in (("a", '"10MiB"'), ("b", '"4GiB"')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.py").write_text(MODEL)
        (tmp_path / name / "pyproject.toml").write_text(f"[tool.memlint]\nbudget = {budget}\n")
    monkeypatch.chdir(tmp_path)
    report = check(["a", "b"], {}, CheckOptions()).report
    assert [(each.target, each.allowed) for each in report.workloads] == [
        ("a/m.py::lin", Budget(max=10 * 2**20)),
        ("b/m.py::lin", Budget(max=4 * 2**30)),
    ]
    told = compare(report, report).workloads
    assert [change.budget[0].outcome for change in told] == ["exceeded", "kept"]
    report = check(["a", "b"], {"budget": "1GiB"}, CheckOptions()).report
    assert [each.allowed for each in report.workloads] == [Budget(max=2**30)] * 2

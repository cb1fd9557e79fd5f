"""Scripts that `[[tool.memlint.workload]]` names: compared between revisions, commented on, and refused where odd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from memlint.base.errors import UsageError
from memlint.commands.check.check import check
from memlint.commands.comment.body import render_body
from memlint.commands.exit_status import exit_status
from memlint.compare.changes import compare
from tests.script.running import OPTIONS, write

TEXT = """
    import sys, torch
    model = torch.nn.Linear(int(sys.argv[1]), 1024, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        model(torch.zeros(8, SIZE, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
TABLE = """
    select = ["MEM010"]
    [[workload]]
    name = "training"
    script = "train.py"
    args = ["{size}"]
    steps = 2
    [budget.training]
    max-increase = "1MiB"
"""
GROWTH = 15 * 1024 * 1024 * 4  # weights of 15 * 1024 more inputs


def configure(folder: Path, size: int) -> None:
    """The project with a model that has `size` inputs."""
    write(folder, TEXT.replace("SIZE", str(size)))
    (folder / "memlint.toml").write_text(textwrap.dedent(TABLE.format(size=size)))


def git(folder: Path, *arguments: str) -> None:
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", *arguments], cwd=folder, env=os.environ | identity, check=True, capture_output=True)


def test_a_revision_of_a_script_is_compared_by_its_name(tmp_path: Path) -> None:
    configure(tmp_path, 1024)
    git(tmp_path, "init", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-m", "first")
    configure(tmp_path, 16 * 1024)
    command = [sys.executable, "-m", "memlint", "diff", "main", "--output-format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    (change,) = json.loads(done.stdout)["workloads"]
    assert change["name"] == "training"
    grown = {each["category"]: each["head"] - each["base"] for each in change["categories"]}
    assert grown["parameter"] == grown["gradient"] == GROWTH
    (budget,) = change["budget"]
    assert budget["outcome"] == "exceeded"


def test_a_report_of_a_script_is_commented_on_with_its_budget(tmp_path: Path) -> None:
    reports = []
    for size in (1024, 16 * 1024):
        configure(tmp_path, size)
        checked = check([str(tmp_path)], {}, OPTIONS)
        assert exit_status(checked.report) == 0
        reports.append(checked.report)
    body = render_body(compare(*reports))
    assert "training" in body
    assert "max-increase 1.00 MiB exceeded" in body


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('script = "train.py"\nargz = []', "unknown key argz"),
        ('script = "train.py"\nmodule = "train"', "it has a script and a module"),
        ('script = "train.py"\nsteps = 0', "steps: "),
        ('script = "train.py"\nargs = "--lr"', "args: "),
    ],
)
def test_tables_that_make_no_sense_are_refused(tmp_path: Path, table: str, message: str) -> None:
    write(tmp_path, "")
    (tmp_path / "memlint.toml").write_text(f"[[workload]]\n{table}\n")
    with pytest.raises(UsageError, match=message):
        check([str(tmp_path)], {}, OPTIONS)


def test_a_script_that_is_not_there_is_an_error_of_its_workload(tmp_path: Path) -> None:
    (tmp_path / "memlint.toml").write_text('[[workload]]\nname = "lost"\nscript = "gone.py"\n')
    report = check([str(tmp_path)], {}, OPTIONS).report
    (workload,) = report.workloads
    assert workload.name == "lost"
    assert workload.error is not None
    assert "gone.py does not exist" in workload.error.message
    assert exit_status(report) == 2

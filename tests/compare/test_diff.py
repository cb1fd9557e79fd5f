"""`memlint diff` on real repositories; the analysis is faked by reports in files, except where a test says so."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from memlint.cli import main
from memlint.commands.comment.body import render_body
from memlint.compare.comparison import Comparison
from memlint.report.model import Budget
from tests.compare.samples import GIB, failed, report, workload

pytestmark = pytest.mark.usefixtures("copied_pythons")


def run(*arguments: str):
    return CliRunner().invoke(main, ["diff", *arguments])


def git(folder, *arguments: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, *workloads, **kinds):
        (tmp_path / name).write_text(report(*workloads, **kinds).model_dump_json(), encoding="utf-8")

    return write


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Two commits of a project without workloads, with one source finding in the second."""
    folder = tmp_path / "project"
    (folder / "below").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "below" / "train.py").write_text("import torch\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    loop = "import torch\n\n\ndef run(model, loader):\n    model.eval()\n    for x in loader:\n        print(model(x).sum().item())\n"
    (folder / "below" / "train.py").write_text(loop)
    git(folder, "commit", "-q", "-a", "-m", "two")
    monkeypatch.chdir(folder)
    return folder


def test_two_reports_are_compared_and_the_budget_decides(reports):
    reports("base.json", workload(device=8 * GIB))
    reports("head.json", workload(device=9 * GIB), gpt=Budget(max_increase=GIB // 2))
    result = run("base.json", "head.json")
    assert result.exit_code == 1, result.output
    first, *rest = result.stdout.splitlines()
    assert first == (
        "base.json -> head.json: budget exceeded in 1 of 1 workload, peak GPU memory +1.00 GiB in 1 of 1 workload"
    )
    assert "gpt (gpt.py::build)  8.00 GiB -> 9.00 GiB  +1.00 GiB (+12.5%)" in rest
    assert "  budget: max-increase 512.0 MiB exceeded (+1.00 GiB)" in rest
    assert run("base.json", "head.json", "--exit-zero").exit_code == 0


def test_the_comparison_is_written_as_json_and_as_markdown(reports, tmp_path):
    reports("base.json", workload(device=8 * GIB))
    reports("head.json", workload(device=9 * GIB))
    assert run("base.json", "head.json", "--output-format", "json", "-o", "c.json").exit_code == 0
    written = json.loads((tmp_path / "c.json").read_text())
    assert (written["kind"], written["workloads"][0]["state"]) == ("comparison", "grown")
    assert run("base.json", "head.json", "--output-format", "markdown").stdout.startswith(
        "### memlint: peak GPU memory +1"
    )


def test_head_that_failed_exits_with_2_and_says_why(reports):
    reports("base.json", workload())
    reports("head.json", failed(message="gpt.py raised ValueError"))
    result = run("base.json", "head.json")
    assert result.exit_code == 2
    assert "gpt.py raised ValueError" in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("[]", "is not a memlint report"),
        ('{"version": 2, "tool": "memlint 9"}', "a newer memlint wrote it"),
        ('{"version": 1, "tool": "memlint 1", "workloads": 3}', "workloads"),
    ],
)
def test_a_file_that_is_no_report_is_refused_with_the_reason(reports, tmp_path, text, said):
    reports("base.json")
    (tmp_path / "broken.json").write_text(text)
    result = run("base.json", "broken.json")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: broken.json is not a memlint report")
    assert said in result.stderr


def test_a_side_that_is_nowhere_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    result = run("missing.json")
    assert result.exit_code == 2
    assert "missing.json is not a file or a directory, and this is no git repository" in result.stderr


def test_a_revision_that_is_nowhere_is_named(repository):
    result = run("HEAD~7")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "HEAD~7 is not a file, a directory or a revision of this repository" in result.stderr


def test_a_shallow_clone_says_how_to_get_the_rest(repository, tmp_path, monkeypatch):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{repository}", str(clone)], check=True)
    monkeypatch.chdir(clone)
    result = run("HEAD~1")
    assert result.exit_code == 2
    assert "it is shallow" in result.stderr
    assert "fetch-depth: 0" in result.stderr


def test_a_repository_without_commits_says_so(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    monkeypatch.chdir(tmp_path)
    assert "it has no commit yet" in run("HEAD").stderr


def test_what_looks_like_an_option_is_no_revision(repository):
    result = run("HEAD", "--output-format", "json", "--", "--fix")
    assert result.exit_code == 2
    assert "--fix cannot be given" in result.stderr


def test_revisions_are_checked_out_below_where_we_are_and_cleared_away(repository, monkeypatch):
    """The real `memlint check`, in a subfolder and with a detached HEAD: source rules only, so that it is quick."""
    git(repository, "checkout", "-q", "--detach")
    monkeypatch.chdir(repository / "below")
    (repository / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch ran\n")
    (repository / ".git" / "hooks" / "post-checkout").chmod(0o755)
    result = run("HEAD~1", "HEAD", "--output-format", "json", "--", "--no-exec", ".")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [(each["code"], each["path"]) for each in told["findings_new"]] == [("MEM404", "train.py")]
    assert told["head"]["commit"] == git(repository, "rev-parse", "HEAD")
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository, "status", "--short") == ""
    assert not (repository / "ran").exists()
    assert told["notes"] == ["no workload of base or head was run, because of --no-exec"]


def test_the_working_tree_is_the_default_and_a_directory_may_be_a_side(repository):
    git(repository, "revert", "--no-edit", "--no-commit", "HEAD")
    told = json.loads(run("HEAD", "--output-format", "json", "--", "--no-exec").stdout)
    assert [each["code"] for each in told["findings_fixed"]] == ["MEM404"]
    assert (told["base"]["label"], told["head"]["label"]) == ("HEAD", "the working tree")
    told = json.loads(run("below", "HEAD", "--output-format", "json", "--", "--no-exec").stdout)
    assert [each["code"] for each in told["findings_new"]] == ["MEM404"]


def test_an_environment_without_memlint_is_named(repository, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    result = run("HEAD", "--base-python", python, "--", "--no-exec")
    assert result.exit_code == 2
    assert "HEAD cannot be analysed" in result.stderr
    assert "Is memlint installed there?" in result.stderr
    result = run("HEAD", "--base-python", str(tmp_path / "none"), "--", "--no-exec")
    assert "cannot be run" in result.stderr


def test_code_of_the_working_tree_in_an_old_revision_is_said(reports, tmp_path, monkeypatch, repository):
    """As when the project is installed from the working tree, and the revision's code imports it from there."""
    from memlint.commands.diff import diff as command
    from memlint.commands.diff.checkouts import Checkout
    from tests.compare.samples import line

    strayed = report(workload(lines=[line(GIB, 3, path=str(repository / "below" / "train.py"))]))
    side = command.TypedSide("HEAD~1")
    (told,) = command._strayed(side, Checkout(tmp_path, "c0ffee", repository), strayed)
    assert "HEAD~1 was analysed with files of the working tree" in told
    assert "--base-python" in told
    assert not list(command._strayed(side, Checkout(tmp_path, "c0ffee", tmp_path / "elsewhere"), strayed))


ATTENTION = """
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(256, 768)

    def forward(self, x):
        q, k, v = self.qkv(x).view(x.size(0), x.size(1), 12, 64).split(4, dim=2)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
{attention}
        return y.transpose(1, 2).flatten(2)
"""
FUSED = "        y = F.scaled_dot_product_attention(q, k, v)"
SCORES = "        scores = q @ k.transpose(-2, -1) / 8\n        y = F.softmax(scores, dim=-1) @ v"
DECLARED = """
[[tool.memlint.workload]]
name = "attention"
target = "model.py::Attention"
inputs = { x = { shape = ["batch", 2048, 256] } }
batch = 8
gpu = "a100-80gb"

[tool.memlint]
sweep = false

[tool.memlint.budget.attention]
max-increase = "512MiB"
"""


def test_attention_that_is_no_longer_fused_fails_the_budget_and_names_the_lines(tmp_path, monkeypatch):
    """The whole way, with real traces: two commits, the lines, the bytes, the budget, the comment's heading."""
    (tmp_path / "model.py").write_text(ATTENTION.format(attention=FUSED))
    (tmp_path / "pyproject.toml").write_text(DECLARED)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "fused")
    (tmp_path / "model.py").write_text(ATTENTION.format(attention=SCORES))
    git(tmp_path, "commit", "-q", "-a", "-m", "scores")
    monkeypatch.chdir(tmp_path)
    result = run("HEAD~1", "HEAD", "--output-format", "json")
    assert result.exit_code == 1, result.output
    (change,) = json.loads(result.stdout)["workloads"]
    scores = 8 * 4 * 2048 * 2048 * 4  # bytes of one tensor of scores, of which the peak has more than one
    grown = change["head"]["peak"]["requested"]["estimate"] - change["base"]["peak"]["requested"]["estimate"]
    assert 2 * scores <= grown <= 4 * scores
    assert [line["source"] for line in change["lines"] if line["head"] >= scores] == [
        "y = F.softmax(scores, dim=-1) @ v"
    ]
    assert "MEM103" in {each["code"] for each in change["findings_new"]}
    (check,) = change["budget"]
    assert (check["rule"], check["outcome"]) == ("max-increase", "exceeded")
    heading = render_body(Comparison.model_validate_json(result.stdout)).splitlines()[0]
    assert heading.startswith("### memlint: budget exceeded in 1 of 1 workload, peak GPU memory +1.")

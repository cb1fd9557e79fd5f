"""`memlint check --fix`, `--unsafe-fixes`, `--diff`, `--no-cache`, and `memlint clean`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from memlint import cli

pytestmark = pytest.mark.usefixtures("copied_pythons")

SUM = """\
import torch
import torch.nn.functional as F

def fit(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        total += loss  # for the log
    print(total)
"""
SUM_FIXED = SUM.replace("+= loss", "+= loss.detach()")
LOOP = """\
import torch

def evaluate(model, loader):
    model.eval()
    for x in loader:
        print(model(x).sum().item())
"""
LOOP_FIXED = LOOP.replace("    for x in loader:\n    ", "    with torch.no_grad():\n        for x in loader:\n        ")


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "sum.py").write_text(SUM)
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "pyproject.toml").write_text("[tool.memlint]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def memlint(*arguments):
    return CliRunner().invoke(cli.main, arguments)


def test_fix_makes_the_safe_corrections_and_reports_the_rest(project):
    result = memlint("check", ".", "--no-exec", "--fix")
    assert Path("sum.py").read_text() == SUM_FIXED
    assert Path("loop.py").read_text() == LOOP
    assert "corrected sum.py: 1 x MEM401\n" in result.stderr
    assert "MEM401" not in result.stdout
    assert "MEM404" in result.stdout
    assert result.exit_code == 1


def test_unsafe_fixes_makes_the_others_too(project):
    result = memlint("check", ".", "--no-exec", "--fix", "--unsafe-fixes")
    assert (Path("sum.py").read_text(), Path("loop.py").read_text()) == (SUM_FIXED, LOOP_FIXED)
    assert result.exit_code == 0, result.output
    assert memlint("check", ".", "--no-exec", "--fix", "--unsafe-fixes").stderr == ""


def test_unsafe_fixes_alone_is_an_error(project):
    result = memlint("check", ".", "--no-exec", "--unsafe-fixes")
    assert result.exit_code == 2
    assert "--unsafe-fixes does nothing by itself" in result.stderr
    assert Path("sum.py").read_text() == SUM


def test_diff_shows_what_would_change_and_changes_nothing(project):
    result = memlint("check", ".", "--no-exec", "--diff")
    assert result.exit_code == 1
    assert result.stdout.startswith("--- sum.py\n+++ sum.py\n")
    assert "-        total += loss  # for the log\n+        total += loss.detach()  # for the log\n" in result.stdout
    assert "loop.py" not in result.stdout
    assert "loop.py" in memlint("check", ".", "--no-exec", "--diff", "--unsafe-fixes").stdout
    assert (Path("sum.py").read_text(), Path("loop.py").read_text()) == (SUM, LOOP)
    assert memlint("check", "loop.py", "--no-exec", "--diff").exit_code == 0
    assert memlint("check", ".", "--no-exec", "--diff", "--exit-zero").exit_code == 0


def test_a_diff_is_what_patch_takes(project):
    Path("changes.patch").write_text(memlint("check", ".", "--no-exec", "--diff", "--unsafe-fixes").stdout)
    subprocess.run(["git", "apply", "-p0", "changes.patch"], check=True)
    assert (Path("sum.py").read_text(), Path("loop.py").read_text()) == (SUM_FIXED, LOOP_FIXED)


@pytest.mark.parametrize("options", [["--ignore", "MEM401"], ["--select", "MEM404"]])
def test_only_findings_that_would_be_reported_are_corrected(project, options):
    memlint("check", ".", "--no-exec", "--fix", *options)
    assert Path("sum.py").read_text() == SUM


def test_suppressed_findings_and_ignored_files_are_not_corrected(project):
    suppressed = SUM.replace("# for the log", "# memlint: ignore[MEM401] the graph is wanted")
    Path("sum.py").write_text(suppressed)
    memlint("check", ".", "--no-exec", "--fix")
    assert Path("sum.py").read_text() == suppressed
    Path("sum.py").write_text(SUM)
    Path("pyproject.toml").write_text('[tool.memlint.per-file-ignores]\n"sum.py" = ["MEM401"]\n')
    memlint("check", ".", "--no-exec", "--fix")
    assert Path("sum.py").read_text() == SUM


def test_the_report_says_what_could_be_corrected(project):
    assert memlint("check", ".", "--no-exec").stdout.endswith(
        "1 finding can be corrected by --fix, 1 more by --fix --unsafe-fixes.\n"
    )
    assert memlint("check", "loop.py", "--no-exec").stdout.endswith(
        "1 finding can be corrected by --fix --unsafe-fixes.\n"
    )
    assert "corrected" not in memlint("check", ".", "--no-exec", "-q").stdout


def test_findings_are_kept_in_a_cache_unless_told_not_to(project):
    first = memlint("check", ".", "--no-exec", "--no-cache")
    assert not Path(".memlint_cache").exists()
    assert memlint("check", ".", "--no-exec").stdout == first.stdout
    assert Path(".memlint_cache").is_dir()
    assert memlint("check", ".", "--no-exec").stdout == first.stdout
    assert memlint("clean").stdout == f"Removed {project.resolve() / '.memlint_cache'}.\n"
    assert not Path(".memlint_cache").exists()
    assert memlint("clean").stdout == "There is no cache here.\n"


def test_a_rule_in_the_project_that_changes_is_run_again(project):
    rules = project / "rules"
    rules.mkdir()
    headings = "\n\n".join(f"    ## {heading}" for heading in __import__("memlint.lint.rule").lint.rule.HEADINGS)
    template = (
        "from memlint.lint.rule import Severity, SourceRule\nfrom memlint.lint.rule import Severity, SourceRule\n"
        f'from memlint.source.text import Source\n\nclass Mine(SourceRule):\n    """Mine.\n\n{headings}\n    """\n\n'
        "    code, name, summary, severity = 'ABC100', 'mine', 'Mine.', Severity.WARNING\n\n"
        "    def check(self, source: Source):\n"
        "        yield self.finding(source, source.tree.body[0], 'MESSAGE', 'f')\n"
    )
    Path("pyproject.toml").write_text('[tool.memlint]\nrule-paths = ["rules"]\nexclude = ["rules"]\n')
    for message in ("first", "second"):
        (rules / "mine.py").write_text(template.replace("MESSAGE", message))
        done = subprocess.run(
            [sys.executable, "-m", "memlint", "check", "."], capture_output=True, text=True, check=False
        )
        assert message in done.stdout, done.stdout + done.stderr

"""What the validator of SARIF's own working group says, with its rules for GitHub's code scanning.

It comes from npm as a program of 104 MB.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from memlint.report.formats.sarif import render_sarif
from memlint.report.model import Report
from tests.npm.packages import HERE, installed
from tests.report.formats.samples import Sample, hostile
from tests.report.sample import REPORT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SYSTEM = {"Linux": "linux", "Darwin": "darwin", "Windows": "win32"}.get(platform.system(), "linux")
MODEL = ("fixtures/models/gpt2.py", "--batch", "8", "--gpu", "a100-80gb", "--budget", "1GiB")
CHECKS = {
    "a model": MODEL,
    "source rules": ("fixtures", "--no-exec"),
}
REPORTS = {
    "the sample": render_sarif(REPORT, [Sample()]),
    "rules that are not known": render_sarif(REPORT),
    "strange strings": render_sarif(hostile(), [Sample()]),
    "nothing": render_sarif(Report(tool="memlint 0.1.0")),
}


@pytest.fixture(scope="module")
def multitool(tmp_path_factory) -> Path:
    folder = installed(tmp_path_factory.mktemp("npm")) / "@microsoft" / f"sarif-multitool-{SYSTEM}"
    (program,) = (file for file in folder.iterdir() if file.stem == "Sarif" and file.suffix == ".Multitool")
    program.chmod(0o755)
    return program


def checked(*arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "memlint", "check", *arguments, "--output-format", "sarif"]
    return subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, check=False).stdout


def complaints(multitool: Path, text: str, folder: Path) -> list[str]:
    """The errors and warnings, each as the rule and the message."""
    (folder / "x.sarif").write_text(text)
    done = subprocess.run(
        [multitool, "validate", "x.sarif", "--rule-kind", "Sarif;Ghas", "--output", "said.sarif"],
        cwd=folder,
        env={**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Analysis completed successfully" in done.stdout, done.stdout + done.stderr
    (run,) = json.loads((folder / "said.sarif").read_text(encoding="utf-8-sig"))["runs"]
    return [f"{result['ruleId']}: {result['message']}" for result in run.get("results", [])]


@pytest.mark.parametrize("arguments", CHECKS.values(), ids=CHECKS)
def test_what_check_writes_is_valid(arguments, multitool, tmp_path):
    text = checked(*arguments)
    assert '"ruleId"' in text
    assert complaints(multitool, text, tmp_path) == []


def test_what_could_not_be_analysed_is_valid(multitool, tmp_path):
    (tmp_path / "broken model.py").write_text("def memlint_workload(batch):\n    raise ValueError('<b>')\n")
    text = checked(str(tmp_path / "broken model.py"))
    assert "cannot be built" in text
    assert complaints(multitool, text, tmp_path) == []


@pytest.mark.parametrize("text", REPORTS.values(), ids=REPORTS)
def test_whatever_a_report_holds_it_is_valid(text, multitool, tmp_path):
    assert complaints(multitool, text, tmp_path) == []


def test_the_validator_knows_what_github_asks_for(multitool, tmp_path):
    document = json.loads(render_sarif(REPORT, [Sample()]))
    del document["runs"][0]["tool"]["driver"]["rules"][0]["help"]
    document["runs"][0]["results"][0]["locations"] = []
    found = complaints(multitool, json.dumps(document), tmp_path)
    assert {entry.partition(":")[0][:2] for entry in found} >= {"GH"}

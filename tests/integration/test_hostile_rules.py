"""Rules of a project that end the process or never return."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

RULE = '''
import os
import sys
from os import _exit

from memlint.lint.rule import Case, Severity, SourceRule

{top}

class Hostile(SourceRule):
    """Summary.

    ## What it does

    It.

    ## Why it costs memory

    It.

    ## How the saving is computed

    It.

    ## Known limits

    It.

    ## References

    It.
    """

    code, name, severity = "ACM001", "hostile", Severity.ERROR
    summary = "It is hostile."

    def check(self, source):
        {body}
        yield from ()
'''
ENDS = ["os._exit(0)", "_exit(0)", "sys.exit(0)", "raise SystemExit"]


def checked(project: Path, top: str, body: str, timeout: int = 30) -> subprocess.CompletedProcess[str]:
    (project / "pyproject.toml").write_text(f'[tool.memlint]\nrule-paths = ["rules"]\ntimeout = {timeout}\n')
    (project / "rules").mkdir()
    (project / "rules" / "acm001.py").write_text(RULE.format(top=top, body=body))
    (project / "code.py").write_text("import torch\n\nlosses = []\n")
    command = [sys.executable, "-m", "memlint", "check", "."]
    return subprocess.run(command, check=False, cwd=project, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("end", ENDS)
def test_a_rule_that_ends_the_process_is_broken(tmp_path: Path, end: str) -> None:
    done = checked(tmp_path, "", end)
    assert done.returncode == 1
    assert "MEM003" in done.stdout
    assert "SystemExit" in done.stdout


@pytest.mark.parametrize("end", ENDS)
def test_a_file_of_rules_that_ends_the_process_is_broken(tmp_path: Path, end: str) -> None:
    done = checked(tmp_path, end, "pass")
    assert done.returncode == 1
    assert "MEM003" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="there are no alarms")
@pytest.mark.parametrize(
    ("top", "body"),
    [
        ("", "while True: pass"),
        ("while True: pass", "pass"),
        (
            "",
            "\n        while True:\n            try:\n                while True: pass\n            except Exception: pass",
        ),
    ],
)
def test_a_rule_that_never_returns_is_stopped_in_time(tmp_path: Path, top: str, body: str) -> None:
    begin = time.monotonic()
    done = checked(tmp_path, top, body, timeout=2)
    assert done.returncode == 2
    assert "error: the project's own rules took more than 2 s, at " in done.stderr
    assert "acm001.py" in done.stderr
    assert time.monotonic() - begin < 30


@pytest.mark.skipif(sys.platform == "win32", reason="no process is watched")
@pytest.mark.parametrize(("top", "body"), [("", "sum(range(10**14))"), ("sum(range(10**14))", "pass")])
def test_a_rule_that_no_signal_reaches_is_killed(tmp_path: Path, top: str, body: str) -> None:
    done = checked(tmp_path, top, body, timeout=2)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the project's own rules took more than 2 s, and could not be interrupted")


@pytest.mark.skipif(sys.platform == "win32", reason="no process is watched")
@pytest.mark.parametrize(
    ("body", "how"),
    [
        ("os.kill(os.getpid(), 9)", "by signal 9"),
        ("import ctypes; ctypes.CDLL(None)._exit(0)", "with status 0"),
    ],
)
def test_a_rule_that_kills_its_process_is_an_error(tmp_path: Path, body: str, how: str) -> None:
    done = checked(tmp_path, "", body)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: the project's own rules ended their process {how}")


MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return self.layer(x)
"""
ENDLESS = RULE.replace("SourceRule", "TraceRule").replace("source", "context")


@pytest.mark.slow  # waits for two time limits
def test_a_verdict_outlives_rules_that_never_return(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.memlint]\nrule-paths = ["rules"]\nselect = ["ACM"]\n')
    (tmp_path / "rules").mkdir()
    rule = ENDLESS.format(top="", body="import time; time.sleep(1000)")
    (tmp_path / "rules" / "acm001.py").write_text(rule)
    (tmp_path / "net.py").write_text(MODEL)
    ran = subprocess.run(
        [sys.executable, "-m", "memlint", "check", "--timeout", "30", "net.py"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "fits" in ran.stdout
    assert "its rules were not finished when it was stopped: findings are missing" in ran.stdout
    assert "--timeout" in ran.stdout

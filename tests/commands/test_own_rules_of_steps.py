"""A project's own rules of traced steps run in the process of the command, and their Changes in the child."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from memlint.cli import main
from memlint.lint import rule
from memlint.worker.session import Session

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.usefixtures("copied_pythons"),
    pytest.mark.skipif(sys.platform != "linux", reason="how processes die is told for Linux"),
]

MODEL = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 256)
    def forward(self, x): return self.layer(x).relu()
"""
HEADINGS = "\n\n".join(f"    ## {heading}\n\n    It says so." for heading in rule.HEADINGS)
RULES = f"""
import os
import re
import time
from dataclasses import dataclass
from memlint.lint.rule import Severity, TraceRule
from memlint.whatif.change import Change, Effect

@dataclass(frozen=True)
class Wider(Change):
    \"\"\"The layer is twice as wide.\"\"\"
    effect = Effect.DYNAMICS
    is_made_after_setup = False
    factor: int = 2
    def describe(self, names):
        return "widen the layer"
    def after_setup(self, program):
        CHANGES

class First(TraceRule):
    \"\"\"Says something at once.

{HEADINGS}
    \"\"\"
    code = "USR100"
    name = "first"
    severity = Severity.WARNING
    def check(self, context):
        yield self.finding(context, None, f"seen in {{os.getpid()}}", nbytes=0, peak_change=0, fix="")

class Second(TraceRule):
    \"\"\"Asks for another step.

{HEADINGS}
    \"\"\"
    code = "USR200"
    name = "second"
    severity = Severity.WARNING
    def check(self, context):
        CHECKS

class Third(TraceRule):
    \"\"\"Says something at last.

{HEADINGS}
    \"\"\"
    code = "USR300"
    name = "third"
    severity = Severity.WARNING
    def check(self, context):
        yield self.finding(context, None, "seen at last", nbytes=0, peak_change=0, fix="")
"""
RETRACES = """
        answer = context.retrace(Wider())
        text = "nothing" if answer is None else str(answer.requested.estimate - context.estimate.requested.estimate)
        yield self.finding(context, None, text, nbytes=0, peak_change=0, fix="")
"""
WIDENS = """
        import torch
        program.model.layer.weight = torch.nn.Parameter(torch.empty(512, 256, device=program.model.layer.weight.device))
        program.model.layer.bias = torch.nn.Parameter(torch.empty(512, device=program.model.layer.bias.device))
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The Report, exit status and stderr of `memlint check` with rules whose parts are given."""

    def checked(checks: str, changes: str = "pass", *options: str):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "memlint.toml").write_text('rule-paths = ["own_rules.py"]\n')
        (tmp_path / "model.py").write_text(MODEL)
        text = re.sub(r"\n +CHECKS", lambda _match: checks, RULES)
        (tmp_path / "own_rules.py").write_text(re.sub(r"\n +CHANGES", lambda _match: changes, text))
        arguments = ("check", "model.py", "--no-sweep", "--select", "USR,MEM010", "--output-format", "json", *options)
        done = CliRunner().invoke(main, arguments)
        assert "Traceback" not in done.stderr
        return json.loads(done.stdout), done.exit_code, done.stderr

    return checked


def messages(report) -> dict[str, str]:
    return {each["code"]: each["message"].partition(" The peak would not fall")[0] for each in report["findings"]}


def test_a_change_of_a_projects_own_is_made_in_the_child_and_kept_for_the_next_look(check) -> None:
    report, status, _errors = check(RETRACES, WIDENS)
    assert status == 0
    found = messages(report)
    weights = 256 * 256 * 4 + 256 * 4  # what is twice as wide: gradients and states of the optimizer besides
    assert int(found["USR200"]) >= weights
    assert found["USR300"] == "seen at last"
    again, _status, _errors = check(RETRACES, WIDENS)
    assert messages(again)["USR200"] == found["USR200"]
    other, _status, _errors = check(RETRACES, WIDENS.replace("512", "1024"))
    assert int(messages(other)["USR200"]) > 2 * int(found["USR200"]), "the file of the rules is code"


def test_a_rule_that_never_ends_leaves_the_figure_and_what_was_found_before_it(check, monkeypatch) -> None:
    def two_seconds(session: Session) -> None:  # the step has had the whole limit
        session._deadline = time.monotonic() + 2

    monkeypatch.setattr(Session, "rules_begin", two_seconds)
    report, status, _errors = check("\n        while True: time.sleep(0.1)")
    assert status == 0
    (workload,) = report["workloads"]
    assert workload["estimate"] is not None
    assert set(messages(report)) == {"USR100"}
    reasons = [each["reason"] for each in report["skipped"]]
    assert any("its rules were not finished" in reason and "findings are missing" in reason for reason in reasons)


@pytest.mark.parametrize("end", ["os._exit(7)", "os.abort()"])
def test_a_child_that_dies_in_a_retrace_leaves_the_figure_and_what_was_found_before_it(check, end) -> None:
    report, status, _errors = check(RETRACES, f"\n        {end}")
    assert status == 0
    (workload,) = report["workloads"]
    assert workload["estimate"] is not None
    assert set(messages(report)) == {"USR100"}
    (skipped,) = report["skipped"]
    assert "its rules were not finished" in skipped["reason"]


def test_a_change_that_raises_means_nothing_for_the_program_and_touches_no_other_rule(check) -> None:
    report, _status, _errors = check(RETRACES, "\n        raise ValueError('no such width')")
    (workload,) = report["workloads"]
    assert workload["error"] is None
    found = messages(report)
    assert {"USR100", "USR300"} <= set(found)
    assert found["USR200"] == "nothing", "the changed program fails, which means that there is no such step"


def test_a_rule_that_ends_its_process_is_a_broken_rule(check) -> None:
    report, _status, _errors = check("\n        os._exit(3)\n        yield")
    assert {"USR100", "USR300"} <= set(messages(report))

"""What action.yml does on a runner; the scripts are run, other actions are not."""

from __future__ import annotations

import shutil
import sys
from textwrap import dedent

import pytest

from memlint.report.reading import read_report
from tests.workflows.actions import Action, load

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the action needs bash")

KEEPS = dedent("""\
    import torch

    def evaluate(model, loader):
        total = 0
        model.eval()
        for batch in loader:
            total += model(batch)
        return total
    """)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "the model.py").write_text(KEEPS)
    (tmp_path / "clean.py").write_text("x = 1\n")
    return tmp_path


def action(project, **inputs):
    return Action.of(
        "action.yml", project, python=sys.executable, version="none", args="--no-exec --no-cache", **inputs
    )


def test_findings_fail_the_job_after_the_report_is_kept(project):
    found = action(project, paths="the model.py\nclean.py\n")
    assert found.run() == 1
    assert found.ran == ["Install memlint", "Analyse", "Write the summary", "Keep the report", "Decide"]
    report = read_report(project / found.known["steps.check.outputs.report"])
    assert {finding.path for finding in report.findings} == {"the model.py"}
    assert found.known["steps.check.outputs.status"] == "1"
    assert found.file("summary.md").read_text().startswith("## memlint: 1 finding")


@pytest.mark.parametrize(("fail_on", "status"), [("findings", 1), ("failures", 0), ("never", 0)])
def test_what_fails_the_job_can_be_chosen(project, fail_on, status):
    assert action(project, paths="the model.py", fail_on=fail_on).run() == status


@pytest.mark.parametrize(("fail_on", "status"), [("findings", 2), ("failures", 2), ("never", 0)])
def test_what_cannot_be_analysed_is_a_failure(project, fail_on, status):
    assert action(project, paths="missing.py", fail_on=fail_on).run() == status


def test_a_word_that_fail_on_does_not_know_is_refused_before_anything_is_analysed(project):
    found = action(project, fail_on="maybe")
    assert found.run() == 2
    assert "fail-on has to be findings, failures or never" in found.log
    assert found.ran[-1] == "Analyse"


def test_a_name_is_no_option_and_no_command(project):
    found = action(project, paths="--version\n$(touch broken)\n; touch broken\nclean.py")
    assert found.run() == 2
    assert not (project / "broken").exists()
    assert "error: " in found.log


def test_inputs_reach_scripts_through_the_environment_alone():
    for step in load("action.yml")["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_every_input_is_used():
    text = str(load("action.yml")["runs"])
    assert all(f"inputs.{name} " in text for name in load("action.yml")["inputs"])

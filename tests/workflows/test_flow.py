"""memlint.yml and then memlint-comment.yml, as GitHub would run them, on a change of a shipped model."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.commands.comment.conftest import github
from tests.commands.comment.fake_github import TOKEN
from tests.workflows.actions import ROOT, Action, load

__all__ = ["github"]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("bash") is None, reason="the workflows need bash")]

FUSED = "y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)"
SCORES = "y = (q @ k.transpose(-2, -1) * q.size(-1) ** -0.5).softmax(-1) @ v"
SHA = "a" * 40


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    """Two checkouts: the models as they are, and with scores of attention in memory."""
    tmp_path = tmp_path_factory.mktemp("workspace")
    for side in ("base", "head"):
        shutil.copytree(ROOT / "fixtures" / "models", tmp_path / side / "fixtures" / "models")
    model = tmp_path / "head" / "fixtures" / "models" / "gpt2.py"
    text = model.read_text()
    assert FUSED in text
    model.write_text(text.replace(FUSED, SCORES))
    return tmp_path


def script(step: dict[str, Any], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    here = str(Path(sys.executable).parent)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=cwd,
        env={**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def fetched(workspace) -> Path:
    """The folder into which the second workflow fetches what the steps of the first have kept."""
    job = load(".github/workflows/memlint.yml")["jobs"]["analyse"]
    folder, reports = workspace / "fetched", {}
    for step in job["steps"]:
        if step.get("uses") == "./head":
            inputs = {name.replace("-", "_"): value for name, value in step["with"].items()}
            inputs |= {"paths": job["env"]["MODELS"], "args": job["env"]["OPTIONS"], "python": sys.executable}
            action = Action.of("action.yml", workspace, **inputs)
            assert action.run() == 0, action.log
            reports[step["id"]] = action.known["steps.check.outputs.report"]
            artifact = folder / inputs["name"].removeprefix("memlint-") / "artifact.zip"
            artifact.parent.mkdir(parents=True)
            with zipfile.ZipFile(artifact, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.write(reports[step["id"]], "report.json")
    done = script(job["steps"][-1], workspace, BASE=reports["base"], HEAD=reports["head"])
    assert done.returncode == 0, done.stderr
    assert "gpt2.py:39" in done.stdout
    return folder


def test_a_change_of_a_model_gets_one_comment_that_names_the_line(fetched, tmp_path, github):
    event = tmp_path / "event.json"
    finished = {
        "id": 5,
        "run_attempt": 1,
        "head_sha": SHA,
        "head_branch": "topic",
        "head_repository": {"full_name": "fork/models"},
    }
    event.write_text(json.dumps({"workflow_run": finished}))
    head = {"sha": SHA, "label": "fork:topic", "repo": {"full_name": "fork/models"}}
    github.pulls = [{"number": github.number, "state": "open", "head": head}]
    environment = {
        "RUNNER_TEMP": str(fetched),
        "GITHUB_TOKEN": TOKEN,
        "GITHUB_EVENT_NAME": "workflow_run",
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_REPOSITORY": github.repository,
        "GITHUB_API_URL": github.url,
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    comment = load(".github/workflows/memlint-comment.yml")["jobs"]["comment"]["steps"][-1]
    for _ in range(2):
        done = script(comment, tmp_path, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "the comment says this already" in done.stdout
    (body,) = github.bodies()
    heading = body.splitlines()[0]
    assert re.fullmatch(r"### memlint: peak GPU memory \+\d\.\d\d GiB in 1 of 2 workloads, 1 new finding", heading)
    assert "<code>fixtures/models/gpt2.py:39</code>" in body
    assert f"for <code>{SHA[:12]}</code>" in body


def test_a_model_that_is_new_is_compared_with_nothing(fetched, tmp_path):
    shutil.copytree(fetched / "head", tmp_path / "head")
    comment = load(".github/workflows/memlint-comment.yml")["jobs"]["comment"]["steps"][-1]
    done = script({"run": comment["run"].rstrip() + " --dry-run"}, tmp_path, RUNNER_TEMP=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("### memlint: 2 workloads, nothing to compare with")

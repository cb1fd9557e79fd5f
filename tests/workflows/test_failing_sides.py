"""The recipes of docs/ci.md where a workload of the head fails, or the base gives no report: the scripts are run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workflows.test_recipes import RECIPES

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the recipes need bash")

GITHUB = next(text for kind, text in RECIPES if kind == "github-workflows" and "memlint comment" in text)
GITLAB = next(text for kind, text in RECIPES if kind == "gitlab-ci")
WORKLOAD = '[[tool.memlint.workload]]\nname = "net"\ntarget = "net.py::Net"\nbatch = 8\n'
SIDES = {
    "fails": WORKLOAD,
    "empty": "[tool.memlint]\n",
    "broken": "[tool.memlint]\nbatch = {}\n",
}
"""What pyproject.toml says: of a model that cannot be built, of none, and what memlint refuses."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for folder in ("base", "head", "runner/reports"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def declare(folder: Path, side: str) -> None:
    (folder / "pyproject.toml").write_text(SIDES[side])
    (folder / "net.py").write_text('def Net():\n    raise ValueError("not today")\n')


def script(text: str, cwd: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run as a runner would, with the memlint of this environment; `options` are added to the last line."""
    text = " ".join([text.rstrip(), *options])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
        cwd=cwd,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def is_memlint(step: dict[str, Any]) -> bool:
    return "memlint " in step.get("run", "") and "pip install" not in step["run"]


def of_github(workspace: Path) -> tuple[list[str], str]:
    """The scripts of the first job that fail it, and the comment of the second."""
    jobs = yaml.safe_load(GITHUB)["jobs"]
    failed: list[str] = []
    for step in jobs["analyse"]["steps"]:
        if failed and "!cancelled()" not in step.get("if", ""):
            continue
        if step.get("uses", "").startswith("actions/upload-artifact"):
            for name in step["with"]["path"].split():
                if (workspace / name).exists():
                    shutil.copy(workspace / name, workspace / "runner" / "reports")
        if is_memlint(step):
            done = script(step["run"], workspace / step.get("working-directory", "."))
            if done.returncode and not step.get("continue-on-error"):
                failed.append(step["run"])
    assert "always()" in jobs["comment"]["if"]
    (comment,) = filter(is_memlint, jobs["comment"]["steps"])
    assert comment["working-directory"] == "${{ runner.temp }}"
    done = script(comment["run"], workspace / "runner", "--dry-run")
    assert done.returncode == 0, done.stderr
    return failed, done.stdout


def of_gitlab(workspace: Path) -> tuple[int, str]:
    """The exit status of the first job, and the note of the second."""
    jobs = yaml.safe_load(GITLAB)
    lines = [line for line in jobs["memlint"]["script"] if not line.startswith(("python -P -m pip", "git worktree"))]
    places = {"/tmp/base": str(workspace / "base"), "$CI_PROJECT_DIR": str(workspace / "head")}
    text = "\n".join(lines)
    for place, here in places.items():
        text = text.replace(place, here)
    done = script(text, workspace / "head")
    assert jobs["memlint"]["artifacts"]["when"] == "always"
    for name in jobs["memlint"]["artifacts"]["paths"]:
        if (workspace / "head" / name).exists():
            shutil.copy(workspace / "head" / name, workspace / "runner" / "reports")
    job = jobs["memlint-note"]
    lines = [*job["before_script"], *(line for line in job["script"] if not line.startswith("python -I -m pip"))]
    note = script("\n".join(lines), workspace / "runner" / "reports", "--dry-run")
    assert note.returncode == 0, note.stderr
    return done.returncode, note.stdout


@pytest.mark.parametrize(
    "base", ["fails", *(pytest.param(base, marks=pytest.mark.slow) for base in ("empty", "broken"))]
)
def test_a_workload_of_the_head_that_fails_is_in_the_comment_and_fails_the_job_once(workspace: Path, base: str) -> None:
    declare(workspace / "base", base)
    declare(workspace / "head", "fails")

    failed, comment = of_github(workspace)

    assert [line for line in failed if "head.json" in line] == failed
    assert len(failed) == 1
    assert "check" in failed[0]
    assert "1 workload not analysed" in comment.splitlines()[0]
    assert ("nothing to compare with" in comment) == (base == "broken")


def test_a_base_without_a_report_is_no_failure_of_the_head(workspace: Path) -> None:
    declare(workspace / "base", "broken")
    declare(workspace / "head", "empty")

    failed, comment = of_github(workspace)

    assert failed == []
    assert "nothing to compare with" in comment


@pytest.mark.parametrize("base", ["fails", pytest.param("broken", marks=pytest.mark.slow)])
def test_on_gitlab_a_workload_of_the_head_that_fails_is_in_the_note_and_fails_the_job(
    workspace: Path, base: str
) -> None:
    declare(workspace / "base", base)
    declare(workspace / "head", "fails")

    status, note = of_gitlab(workspace)

    assert status == 2
    assert (workspace / "head" / "gl-code-quality-report.json").exists()
    assert "1 workload not analysed" in note.splitlines()[0]
    assert ("nothing to compare with" in note) == (base == "broken")


def test_on_gitlab_a_base_without_a_report_is_no_failure_of_the_head(workspace: Path) -> None:
    declare(workspace / "base", "broken")
    declare(workspace / "head", "empty")

    status, note = of_gitlab(workspace)

    assert status == 0
    assert "nothing to compare with" in note

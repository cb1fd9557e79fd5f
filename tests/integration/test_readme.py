"""What the README shows is what happens."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from memlint.base.version import PUBLISHED

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(mark: str) -> str:
    """The code block that follows a mark."""
    found = re.search(rf"<!-- {mark} -->\n```\w+\n(.*?)```", README, flags=re.DOTALL)
    assert found, f"the README has no block marked {mark}"
    return found[1]


def memlint(arguments: list[str], directory: Path) -> str:
    environment = {**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "memlint", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_the_command_for_newcomers_is_that_of_the_example():
    example = block("example").splitlines()[0].removeprefix("$ ")
    assert block("command: check").strip().endswith(f".venv/bin/{example}")


def test_the_table_for_pyproject_is_understood(tmp_path):
    table = block("pyproject")
    (tmp_path / "pyproject.toml").write_text(table)
    model = tmp_path / tomllib.loads(table)["tool"]["memlint"]["workload"][0]["target"].partition("::")[0]
    model.parent.mkdir(parents=True)
    model.write_text((ROOT / "fixtures" / "models" / model.name).read_text())
    report = json.loads(memlint(["check", ".", "--no-sweep", "--output-format", "json"], tmp_path))
    (workload,) = report["workloads"]
    assert (workload["name"], workload["origin"], workload["assumptions"]) == ("gpt2-small", "config", [])
    assert workload["budget"]["outcome"] == "fits"


def test_the_declaration_in_the_file_is_understood(tmp_path):
    model = (ROOT / "fixtures" / "models" / "gpt2.py").read_text()
    (tmp_path / "model.py").write_text(f"{model}\n\n{block('in-file')}")
    report = json.loads(memlint(["check", "model.py", "--no-sweep", "--output-format", "json"], tmp_path))
    (workload,) = report["workloads"]
    assert (workload["name"], workload["origin"], workload["batch"]) == ("gpt2_small", "declared", 8)


def test_every_link_to_a_file_leads_to_one():
    for file in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks" / "README.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text(encoding="utf-8")):
            assert (file.parent / target).exists(), f"{file.name} links to {target}"


def test_nobody_is_told_to_install_another_project_of_that_name():
    for file in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        assert not re.search(r"pip install \S*(?<!torch-)\bmemlint", file.read_text(encoding="utf-8")), file


def test_documents_say_how_to_install_what_is_not_published():
    """`memlint.base.version.PUBLISHED` switches the messages; the documents follow it."""
    for file in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        published = re.findall(r"pip install 'torch-memlint\[\w+\]'", file.read_text(encoding="utf-8"))
        assert bool(published) <= PUBLISHED, file

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

pytestmark = pytest.mark.usefixtures("copied_pythons")

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
    assumed = [each for each in workload["assumptions"] if "newer than those checked" not in each["text"]]
    assert (workload["name"], workload["origin"], assumed) == ("gpt2-small", "config", [])
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


def rows_after(mark: str) -> list[list[str]]:
    """Cells of the rows of the table that follows a mark, without its head."""
    found = re.search(rf"<!-- {mark} -->\n((?:\|.*\n)+)", README)
    assert found, f"the README has no table marked {mark}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()[2:]]


def test_the_table_of_accuracy_is_that_of_the_page_that_it_links_to():
    page = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
    whole = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")
    ]
    rows = rows_after("published")
    assert {row[0] for row in rows} == {"held out"}
    for row in rows:
        assert row in whole, f"docs/published.md does not say {row}"


def test_the_comparison_has_memlints_figures_of_today():
    page = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
    known = {row[0]: row for row in (re.split(r"\s*\|\s*", line.strip("| ")) for line in page.splitlines())}
    names = ("bert large classifier, batch 4", "BERT-large, float16, batch 4", "BERT-large, checkpoints, batch 1 of 4")
    rows = {name: cells for name, *cells in rows_after("estimators")}
    measured, estimated = ([int(known[name][column]) for name in names] for column in (5, 7))
    assert rows["measured"] == [f"{mib:,} MiB" for mib in measured]
    shares = [mib / truth - 1 for mib, truth in zip(estimated, measured, strict=True)]
    assert rows["memlint"] == [f"{mib:,} MiB ({share:+.0%})" for mib, share in zip(estimated, shares, strict=True)]


def test_every_page_of_the_documentation_is_listed():
    generated = {"performance.md", "contract-tests.md"}  # linked where they are spoken of
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name in generated or f"(docs/{page.name}" in README, f"README.md does not list docs/{page.name}"

"""`memlint check --output-format`: what it prints, where, with which status, and with which other options."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from memlint import cli
from memlint.report.formats import FORMATS

pytestmark = pytest.mark.usefixtures("copied_pythons")

LEAK = """\
import torch

def evaluate(model, loader):
    model.eval()
    for x in loader:
        print(model(x).sum().item())
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(LEAK)
    return tmp_path


def check(*arguments: str):
    return CliRunner().invoke(cli.main, ["check", ".", "--no-exec", *arguments])


@pytest.mark.parametrize("name", FORMATS)
def test_the_status_does_not_depend_on_the_format_nor_the_text_on_where_it_goes(name):
    printed = check("--output-format", name)
    assert printed.exit_code == 1
    assert "MEM404" in printed.stdout
    written = check("--output-format", name, "-o", "report")
    assert (written.exit_code, written.stdout) == (1, "")
    assert Path("report").read_text() == printed.stdout
    assert check("--output-format", name, "--exit-zero").exit_code == 0


def test_sarif_explains_the_rules_that_found_something():
    rules = json.loads(check("--output-format", "sarif").stdout)["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["name"] for rule in rules] == ["eval-without-no-grad"]


def test_a_target_that_cannot_be_read_is_an_error_in_every_format():
    Path("broken.py").write_text("import torch\ndef\n")
    for name in FORMATS:
        done = CliRunner().invoke(cli.main, ["check", "broken.py", "--no-exec", "--output-format", name])
        assert done.exit_code == 2
        assert "broken.py" in done.stdout
    suite = ET.fromstring(
        CliRunner().invoke(cli.main, ["check", "broken.py", "--no-exec", "--output-format", "junit"]).stdout
    )
    assert suite.find(".//error") is not None


@pytest.mark.parametrize("name", ["concise", "github"])
def test_errors_that_stand_in_the_lines_are_not_said_again(name):
    Path("broken.py").write_text("import torch\ndef\n")
    done = CliRunner().invoke(cli.main, ["check", "broken.py", "--no-exec", "--output-format", name])
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["concise", "github", "gitlab", "sarif", "junit", "rdjson", "markdown"])
def test_formats_that_list_findings_refuse_statistics(name):
    done = check("--output-format", name, "--statistics")
    assert done.exit_code == 2
    assert f"{name} lists findings and has no place for --statistics" in done.stderr


def test_json_lines_have_the_statistics():
    first = json.loads(check("--output-format", "json-lines", "--statistics").stdout.splitlines()[0])
    assert first["statistics"] == [{"code": "MEM404", "name": "eval-without-no-grad", "count": 1}]


@pytest.mark.parametrize("options", [["--init"], ["--add-ignore"], ["--write-baseline", "known.json"], ["--diff"]])
def test_options_that_print_no_report_refuse_a_format_before_anything_is_written(options, project):
    done = check("--output-format", "sarif", *options)
    assert done.exit_code == 2
    assert "print no report that could be sarif" in done.stderr
    assert done.stdout == ""
    assert [file.name for file in project.iterdir()] == ["train.py"]
    assert Path("train.py").read_text() == LEAK


def test_every_example_in_the_documentation_is_what_the_command_prints():
    page = (Path(__file__).parents[3] / "docs" / "output-formats.md").read_text(encoding="utf-8")
    Path("train.py").write_text(re.search(r"<!-- file: train.py -->\n```python\n(.*?)```", page, re.DOTALL)[1])
    examples = re.findall(r"```console\n\$ memlint (.*?)\n(.*?)```\n", page, re.DOTALL)
    assert len(examples) == len(FORMATS) - 2  # those of json and sarif are long
    for command, printed in examples:
        assert CliRunner().invoke(cli.main, command.split()).stdout == printed

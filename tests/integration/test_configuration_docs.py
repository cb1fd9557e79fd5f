"""What docs/configuration.md and docs/writing-rules.md show is what happens; no setting and no option is left out."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from memlint import cli
from memlint.config import Budget, Settings

pytestmark = pytest.mark.usefixtures("copied_pythons")

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
_BLOCK = re.compile(
    r"(?:<!-- (?P<what>file|is|end of): (?P<name>\S+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)```|<!-- removed: (?P<removed>\S+) -->",
    re.DOTALL,
)


def test_every_example_is_what_the_commands_print(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    num_commands = 0
    for block in _BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        text = block["text"]
        if block["removed"]:
            Path(block["removed"]).unlink()
        elif block["what"] == "file":
            Path(block["name"]).write_text(text)
        elif block["what"] == "is":
            assert Path(block["name"]).read_text() == text
        elif block["what"] == "end of":
            assert Path(block["name"]).read_text().endswith(text)
        elif block["kind"] == "console":
            num_commands += text.count("$ memlint ")
            assert text == repeated(text)
    assert num_commands >= 10


def printed(command: str) -> str:
    return CliRunner().invoke(cli.main, command.split()).output


def test_the_examples_of_writing_rules_are_what_the_commands_print(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (PAGE.parent / "writing-rules.md").read_text(encoding="utf-8")
    first, second = re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL)
    assert first == repeated(first)
    rule = Path("lint_rules/acm001_no_doubles.py")
    assert (
        re.search(r"    code = .*?    good = [^\n]*\n", page, re.DOTALL)[0].replace(
            "  # one to five capital letters and three digits; what it means never changes", ""
        )
        in rule.read_text()
    )
    rule.write_text(rule.read_text().replace("line=3", "line=2"))
    Path("memlint.toml").write_text('rule-paths = ["lint_rules"]\n')
    assert second == repeated(second)


def repeated(console: str) -> str:
    commands = re.findall(r"^\$ memlint (.*)\n", console, flags=re.MULTILINE)
    return "".join(f"$ memlint {command}\n{printed(command)}" for command in commands)


@pytest.mark.parametrize("table", [Settings, Budget])
def test_every_setting_is_there(table):
    page = PAGE.read_text(encoding="utf-8")
    for name, field in table.model_fields.items():
        key = field.alias or name
        assert f"`{key}`" in page or f"`budget.NAME.{key}`" in page, f"docs/configuration.md says nothing of {key}"


def test_every_option_of_check_is_there():
    page = PAGE.read_text(encoding="utf-8")
    for option in cli.main.commands["check"].params:
        if isinstance(option, click.Option):
            for text in option.opts:
                assert re.search(rf"`{text}[`\s]", page), f"docs/configuration.md says nothing of {text}"

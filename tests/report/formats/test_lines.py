"""Formats of one line for each complaint: concise, GitHub's commands, JSON lines."""

from __future__ import annotations

import json
import re

import pytest

from memlint.report.escaping import inert
from memlint.report.formats.concise import render_concise
from memlint.report.formats.github import escape_data, escape_property, render_github
from memlint.report.formats.json import render_json, render_json_lines
from memlint.report.formats.problems import problems
from memlint.report.model import Report
from tests.report.formats.samples import HOSTILE, hostile
from tests.report.sample import REPORT


def test_concise_lines_are_read_by_editors():
    lines = render_concise(REPORT).splitlines()
    assert "models/gpt2.py:61:15: MEM107 attention keeps its weights for backward" in lines
    assert "models/unet.py: not-analysed UNet cannot be built: ValueError: channels must be divisible by 32" in lines
    assert "models/gpt2.py:61: over-limit GPT2 exceeds budget (5.00 GiB): its device peak is 5.31 GiB" in lines


def test_concise_says_nothing_where_nothing_is_wrong():
    assert render_concise(Report(tool="memlint 0")) == ""


def test_a_limit_that_may_be_exceeded_is_no_complaint():
    budget = REPORT.workloads[0].budget.model_copy(update={"outcome": "uncertain"})
    workload = REPORT.workloads[0].model_copy(update={"budget": budget})
    assert problems(Report(tool="memlint 0", workloads=[workload])) == []


def test_a_limit_that_has_a_finding_is_said_once_and_another_one_still():
    gpu = REPORT.workloads[0].verdict.model_copy(update={"outcome": "does not fit"})
    workload = REPORT.workloads[0].model_copy(update={"verdict": gpu})
    finding = REPORT.findings[0].model_copy(update={"code": "MEM010"})
    found = problems(Report(tool="memlint 0", workloads=[workload], findings=[finding]))
    assert [(entry.code, entry.message[:11]) for entry in found] == [
        ("over-limit", "GPT2 exceed"),
        ("MEM010", finding.message[:11]),
    ]
    assert "NVIDIA A100 80GB" in found[0].message
    without_budget = workload.model_copy(update={"budget": None})
    found = problems(Report(tool="memlint 0", workloads=[without_budget], findings=[finding]))
    assert [entry.code for entry in found] == ["MEM010"]


def test_a_limit_at_level_warning_is_a_warning():
    budget = REPORT.workloads[0].budget.model_copy(update={"level": "warning"})
    workload = REPORT.workloads[0].model_copy(update={"budget": budget})
    assert render_github(Report(tool="memlint 0", workloads=[workload])).startswith("::warning file=models/gpt2.py,")


def test_a_finding_in_a_model_without_a_file_of_the_user_stands_at_the_target():
    finding = REPORT.findings[0].model_copy(update={"path": "", "line": 1, "column": 1})
    lines = render_concise(REPORT.model_copy(update={"findings": [finding]})).splitlines()
    assert lines[-1] == "models/gpt2.py: MEM107 attention keeps its weights for backward"


def is_obeyed(line: str) -> bool:
    """Whether GitHub's runner takes a line of a log for a command."""
    return line.lstrip().startswith("::") or "##[" in line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("##[add-mask]x", "#\\x23[add-mask]x"),
        ("a ##[add-mask]x", "a #\\x23[add-mask]x"),
        ("::error::x", "\\x3a:error::x"),
        ("  ::error::x", "  \\x3a:error::x"),
        ("a::error::x", "a::error::x"),
        ("### a [b]", "### a [b]"),
    ],
)
def test_what_the_runner_would_obey_is_shown_with_an_escape(text, shown):
    assert inert(text) == shown
    assert not is_obeyed(shown)


@pytest.mark.parametrize(
    "text", [HOSTILE, "##[add-mask]x", "::error::x", "  ::error::x", "\n::error::x", "\x1b[2J", "x\u2028::error::x"]
)
@pytest.mark.parametrize("render", [render_concise, render_github])
def test_a_complaint_is_one_line_that_hides_and_commands_nothing(render, text):
    report = hostile(text)
    lines = re.split(r"[\r\n]", render(report))
    assert len(lines) - 1 == len(problems(report))
    assert all(line.isprintable() for line in lines)
    if render is render_concise:
        assert not any(is_obeyed(line) for line in lines)
    else:
        assert all(re.match(r"::(error|warning|notice) file=", line) for line in lines[:-1])


@pytest.mark.parametrize(
    ("text", "data", "value"),
    [
        ("100%", "100%25", "100%25"),
        ("a\r\nb", "a%0D%0Ab", "a%0D%0Ab"),
        ("a:b,c", "a:b,c", "a%3Ab%2Cc"),
        ("%0A", "%250A", "%250A"),
        ("a=b;c", "a=b;c", "a=b;c"),
    ],
)
def test_commands_are_escaped_as_by_the_toolkit_of_actions(text, data, value):
    assert escape_data(text) == data
    assert escape_property(text) == value


def obeyed(line: str) -> tuple[str, dict[str, str], str]:
    """What GitHub's runner makes of a command: name, properties and text."""
    command, text = re.fullmatch(r"::(.*?)::(.*)", line).groups()
    name, _, given = command.partition(" ")
    properties = dict(part.split("=", 1) for part in given.split(","))
    return name, {key: plain(value, ("%2C", ","), ("%3A", ":")) for key, value in properties.items()}, plain(text)


def plain(text: str, *more: tuple[str, str]) -> str:
    for code, char in (("%0D", "\r"), ("%0A", "\n"), *more, ("%25", "%")):
        text = text.replace(code, char)
    return text


def test_the_runner_reads_back_what_was_meant():
    name, properties, text = obeyed(render_github(REPORT).splitlines()[2])
    assert name == "warning"
    assert properties == {"file": "models/gpt2.py", "line": "61", "col": "15", "title": "MEM107 (GPT2)"}
    assert text.splitlines()[0] == "attention keeps its weights for backward"
    assert text.splitlines()[2] == "help: call F.scaled_dot_product_attention"


@pytest.mark.parametrize("path", ["a,line=1.py", "a::error::b.py", "100%25.py", "a  b:c.py"])
def test_the_runner_reads_back_every_file_name(path):
    finding = REPORT.findings[1].model_copy(update={"path": path})
    line = render_github(Report(tool="memlint 0", findings=[finding])).removesuffix("\n")
    assert obeyed(line)[1] == {"file": path, "line": "52", "col": "9", "title": "MEM402"}


@pytest.mark.parametrize("report", [REPORT, hostile()], ids=["sample", "hostile"])
def test_json_lines_hold_what_json_holds(report):
    lines = [json.loads(line) for line in render_json_lines(report).splitlines()]
    document = json.loads(render_json(report))
    assert lines[0].pop("kind") == "report"
    for key, kind in (("workloads", "workload"), ("findings", "finding"), ("skipped", "skipped")):
        items = [line for line in lines[1:] if line["kind"] == kind]
        assert [{name: value for name, value in item.items() if name != "kind"} for item in items] == document.pop(key)
    assert lines[0] == document

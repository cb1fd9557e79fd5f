"""Each format of one Report is what was reviewed."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.report.formats import FORMATS, render
from memlint.report.model import Report
from tests.report.formats.samples import Sample, hostile
from tests.report.sample import REPORT

FILES = {
    "json-lines": "check.jsonl",
    "concise": "concise.txt",
    "full": "full.txt",
    "github": "github.txt",
    "gitlab": "gitlab.json",
    "sarif": "check.sarif",
    "junit": "junit.xml",
    "rdjson": "rdjson.json",
    "markdown": "check.md",
}


@pytest.mark.parametrize("name", FILES)
def test_a_format_is_what_was_reviewed(name):
    expected = (Path(__file__).parent / FILES[name]).read_text(encoding="utf-8")
    assert render(REPORT, name, lambda: [Sample()]) == expected


def test_no_format_is_forgotten():
    assert set(FORMATS) == {"json", *FILES}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "report", [Report(tool="memlint 0"), hostile(), hostile("")], ids=["nothing", "hostile", "empty"]
)
def test_every_format_ends_its_last_line_whatever_it_is_given(name, report):
    text = render(report, name, list)
    assert not text or text.endswith("\n")
    text.encode()


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("concise", "full", "github", "markdown")])
def test_documents_for_programs_are_ascii_so_that_no_pipe_can_spoil_them(name):
    assert render(hostile(), name, list).isascii()

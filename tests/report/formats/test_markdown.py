"""Markdown in which no string of the Report means anything."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from memlint.report.escaping import one_line
from memlint.report.formats.markdown import render_markdown
from memlint.report.model import Report
from tests.report.formats.samples import HOSTILE, hostile
from tests.report.sample import REPORT

TAGS = {"table", "tr", "th", "td", "details", "summary", "code", "b", "br", "p"}
STRANGE = [
    HOSTILE,
    "@someone",
    "`@someone`",
    "</code>@someone",
    "\n\n# heading",
    "http://evil.example",
    "<!--",
    "&#64;x",
]


class Page(HTMLParser):
    """The tags of a page, and its text inside and outside of `code`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.code: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not attrs or (tag == "td" and [name for name, _ in attrs] == ["colspan"])
        if tag == "code":
            self.code.append("")
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "code":
            self.code[-1] += data
        else:
            self.text.append(data)

    def handle_comment(self, data):
        raise AssertionError(data)


def test_the_verdict_is_the_heading():
    assert render_markdown(REPORT).startswith(
        "## memlint: 1 limit exceeded, 1 target not analysed, 2 findings\n\n<table>"
    )
    assert render_markdown(Report(tool="memlint 0")) == "## memlint: no findings\n"


@pytest.mark.parametrize("text", STRANGE)
def test_strings_stand_in_code_and_nowhere_else(text):
    page = Page(render_markdown(hostile(text)))
    assert page.tags <= TAGS
    assert page.open == []
    said = "".join(page.text).removeprefix("## memlint")
    assert set(said).isdisjoint("@`#[]|<>&")
    assert not any(word in said for word in ("someone", "evil", "script", "heading"))
    assert one_line(text) in page.code


@pytest.mark.parametrize("text", STRANGE)
def test_after_the_heading_there_are_only_blocks_of_html(text):
    heading, *blocks = render_markdown(hostile(text)).removesuffix("\n").split("\n\n")
    assert "\n" not in heading
    for block in blocks:
        assert block.startswith(("<table>", "<details>"))
        assert all(line.strip() for line in block.split("\n"))


@pytest.mark.parametrize("text", STRANGE)
def test_a_parser_of_markdown_sees_no_markdown_in_it(text):
    parser = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})
    tokens = parser.parse(render_markdown(hostile(text)))
    assert {token.type for token in tokens} == {"heading_open", "inline", "heading_close", "html_block"}
    assert sum(token.type == "inline" for token in tokens) == 1


def test_a_page_stays_within_what_github_takes():
    findings = [REPORT.findings[0].model_copy(update={"message": "<&>" * 1000})] * 5000
    text = render_markdown(REPORT.model_copy(update={"findings": findings}))
    assert len(text.encode()) < 2**20
    assert "and 4,900 more" in text
    assert "5,000 findings" in text

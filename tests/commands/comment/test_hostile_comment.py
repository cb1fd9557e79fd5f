"""Nothing that a Report says is more than text in the comment made of it: `memlint comment --dry-run`, rendered."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cmarkgfm
import html5lib
import pytest
from click.testing import CliRunner
from cmarkgfm.cmark import Options

from memlint.cli import main
from memlint.commands.comment.body import LIMIT
from memlint.commands.comment.marker import marked, marker_of, read_marker
from memlint.report.escaping import one_line
from memlint.report.formats.json import render_json
from memlint.report.model import Budget, Report
from tests.compare.samples import GIB, MIB, finding, line, report, sweep, workload
from tests.report.formats.samples import HOSTILE, hostile
from tests.report.sample import REPORT

if TYPE_CHECKING:
    from pathlib import Path
    from xml.etree.ElementTree import Element

ELEMENTS = {
    *("html", "head", "body", "h3", "p", "table", "tbody", "tr", "th", "td", "details", "summary"),
    *("code", "pre", "b", "br", "sub"),
}
MERMAID = re.compile(
    r'xychart-beta\n {4}title "Peak GPU memory by batch size, base and head"\n'
    r' {4}x-axis "batch" \[[\d, ]+\]\n {4}y-axis "GiB"\n(?: {4}line \[[\d., ]+\]\n){2}'
)
MARKER = "<!-- memlint comment tag=default run=999999999999999999.1 digest=0123456789abcdef -->"
STRANGE = {
    "everything at once": HOSTILE,
    "a mention": "@someone @acme/team",
    "a mention after the code ends": "</code></td></table></details>@someone",
    "a mention in backticks": "`` ` @someone ` ``",
    "an issue": "#1 acme/models#1 GH-1 !1 ~bug %1 $1 0123456789abcdef0123456789abcdef01234567",
    "a link": "[click](https://evil.example) <https://evil.example> https://evil.example www.evil.example me@evil.example",
    "an image": "![x](https://evil.example/x.png) <img src=https://evil.example/x.png onerror=alert(1)>",
    "a reference": "[x]: https://evil.example\n\n[x]",
    "a footnote": "[^1]\n\n[^1]: @someone",
    "a heading": "\n\n# budget kept in all workloads\n\n---\n\nx\n===\n",
    "the end of a table": "a | b \\| c\n\n| a | b |\n|---|---|\n| @x | y |",
    "the end of a folded block": "</summary></details></details><details open>",
    "a chart": "```mermaid\ngraph TD; A[\"<a href='https://evil.example'>x</a>\"]\n```",
    "the end of a chart": "\n```\n\n@someone\n",
    "a marker": MARKER,
    "a marker on its own": f"\n\n{MARKER}\n",
    "an open comment": "<!-- ",
    "a closed comment": "--> ]]> ?>",
    "a script": "<script>alert(1)</script><style>*{display:none}</style><textarea><plaintext>",
    "a command of the runner": "::set-output name=a::b\n::error file=x::y\n##[error]z ::add-mask::e",
    "colours": "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x1b\\x\x1b]8;;\x1b\\",
    "another direction": "\u202e\u2066@someone\u2069\u202c \u200b\u2028\u2029\u00ad\ufeff",
    "an entity": "&#64;someone &lt;b&gt; &commat;someone \\@someone",
    "mathematics": "$`\\href{https://evil.example}{x}`$ $$\\unicode{64}$$",
    "a task": "- [x] done\n- [ ] @someone",
    "a very long word": "<" * 20_000,
    "nothing to see": "\u3164\u2800 \u115f",
}
BASE = report(
    workload("gpt", 8 * GIB, sweeps=[sweep({4: 4 * GIB, 8: 8 * GIB, 16: 16 * GIB}, 69)], lines=[line(GIB, 10, "a")]),
    workload("unet", 2 * GIB),
    findings=[finding("an old loop", code="MEM404")],
)
HEAD = report(
    workload(
        "gpt", 9 * GIB, sweeps=[sweep({4: 5 * GIB, 8: 9 * GIB, 16: 20 * GIB}, 36)], lines=[line(2 * GIB, 12, "b")]
    ),
    workload("unet", 2 * GIB),
    *REPORT.workloads,
    findings=[finding("scores in memory", workload="gpt"), *REPORT.findings],
    gpt=Budget(max_increase=MIB),
)


@dataclass
class Rendered:
    """What a browser makes of the comment."""

    elements: set[str]
    outside: str
    """The text that no `code` element holds."""
    code: list[str]


def rendered(markdown: str) -> Rendered:
    html = cmarkgfm.github_flavored_markdown_to_html(markdown, options=Options.CMARK_OPT_UNSAFE)
    page = html5lib.parse(html, namespaceHTMLElements=False)
    found = Rendered(set(), "", [])
    _collect(page, found, in_code=False)
    return found


def _collect(element: Element, found: Rendered, *, in_code: bool) -> None:
    assert isinstance(element.tag, str), f"a comment: {element.text}"
    found.elements.add(element.tag)
    allowed = {"colspan"} if element.tag == "td" else {"lang"} if element.tag == "pre" else set()
    assert set(element.attrib) <= allowed, element.attrib
    if element.tag == "code":
        found.code.append("".join(element.itertext()))
        in_code = True
    elif not in_code:
        found.outside += element.text or ""
    for child in element:
        _collect(child, found, in_code=in_code)
        if not in_code:
            found.outside += child.tail or ""


def dry_run(folder: Path, base: Report | None, head: Report | bytes, *options: str, number: int = 7) -> str:
    (folder / "head.json").write_bytes(head if isinstance(head, bytes) else render_json(head).encode())
    sides = ["--head", str(folder / "head.json")]
    if base is not None:
        (folder / "base.json").write_text(render_json(base))
        sides += ["--base", str(folder / "base.json")]
    command = ["comment", "github", "--dry-run", "--repo", "acme/models", "--pull-request", str(number)]
    done = CliRunner().invoke(main, [*command, *sides, *options])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("sides", ["both", "head", "base"])
@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
def test_no_string_of_a_report_is_more_than_text_in_the_comment(text, sides, tmp_path):
    base = None if sides == "head" else hostile(text, BASE)
    head = HEAD if sides == "base" else hostile(text, HEAD)
    body = dry_run(tmp_path, base, head)
    page = rendered(body)
    assert page.elements <= ELEMENTS
    for word in ("someone", "evil", "alert", "memlint comment", "set-output", "add-mask", "done", "kept in all"):
        assert word not in page.outside
    assert not re.search(r"[@#`|<>\[\]$\\~]|https?:|www\.|::|&(?!gt;)", page.outside), page.outside
    assert all(char.isprintable() or char == "\n" for char in body)
    assert len(body) < LIMIT
    assert any(one_line(text)[:400] in code for code in page.code)


@pytest.mark.parametrize("text", [text for text in STRANGE.values() if len(text) < 1000])
def test_a_chart_holds_nothing_but_numbers(text, tmp_path):
    body = dry_run(tmp_path, hostile(text, BASE), hostile(text, HEAD))
    charts = re.findall(r"^```mermaid\n(.*?)^```$", body, re.DOTALL | re.MULTILINE)
    assert charts
    assert all(MERMAID.fullmatch(chart) for chart in charts)


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
def test_the_marker_of_a_comment_is_the_one_that_memlint_wrote(text, tmp_path):
    body = dry_run(tmp_path, None, hostile(text, HEAD))
    assert read_marker(body) is None
    marker = marker_of(body, "default", (7, 1))
    assert read_marker(marked(body, marker)) == marker


def test_the_text_of_a_report_says_nothing_about_where_it_is_posted(tmp_path):
    document = json.loads(render_json(HEAD))
    plain = dry_run(tmp_path, BASE, HEAD)
    document.update(pull_request=999, number=999, repository="evil/models", tag="other", event={"number": 999})
    assert dry_run(tmp_path, BASE, json.dumps(document).encode()) == plain
    assert "999" not in plain


def test_numbers_as_large_as_they_may_be_fit_into_the_comment(tmp_path):
    body = dry_run(tmp_path, BASE, report(workload("gpt", 2**63 - 1, lines=[line(2**63 - 1, 2**63 - 1, "a")])))
    assert rendered(body).elements <= ELEMENTS
    assert "8388608.0 TiB" in body


def test_hundreds_of_workloads_and_thousands_of_findings_fit_into_the_comment(tmp_path):
    head = report(
        *(workload(f"w{number}" + "<" * 3000, GIB) for number in range(200)),
        findings=[finding(f"m{number}" + "@x" * 200) for number in range(2000)],
    )
    body = dry_run(tmp_path, BASE, head)
    assert len(body) < LIMIT
    assert rendered(body).elements <= ELEMENTS


@pytest.mark.parametrize("data", [b"", b"{", b'{"version": 2}', b"PK\x05\x06" + b"\0" * 18, b"[" * 10**6])
def test_a_report_that_is_refused_is_no_comment(data, tmp_path):
    (tmp_path / "head.json").write_bytes(data)
    command = ["comment", "github", "--dry-run", "--repo", "acme/models", "--pull-request", "7"]
    done = CliRunner().invoke(main, [*command, "--head", str(tmp_path / "head.json")])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "is not a memlint report" in done.stderr
    assert "help: " in done.stderr

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from memlint.commands.comment.body import render_body
from memlint.compare.changes import compare
from memlint.report.model import Budget, Interval, LineBytes
from tests.compare.samples import GIB, MIB, failed, finding, line, lost, report, sweep, workload
from tests.report.formats.samples import HOSTILE, hostile


def body(base, head, **options):
    return render_body(compare(base, head), **options)


BASE = report(
    workload(
        "gpt", 8 * GIB, sweeps=[sweep({4: 4 * GIB, 8: 8 * GIB, 16: 16 * GIB}, 69)], lines=[line(GIB, 10, "a = b")]
    ),
    workload("unet", 2 * GIB),
    findings=[finding("an old loop", code="MEM404")],
)
HEAD = report(
    workload(
        "gpt",
        Interval(low=9 * GIB, estimate=10 * GIB, high=11 * GIB),
        sweeps=[sweep({4: 5 * GIB, 8: 10 * GIB, 16: 20 * GIB}, 36)],
        lines=[line(3 * GIB, 12, "a = b")],
    ),
    workload("unet", 2 * GIB),
    findings=[finding("scores in memory", workload="gpt")],
    gpt=Budget(max_increase=512 * MIB),
)


def test_the_heading_has_the_verdict_and_the_number():
    heading = (
        "### memlint: budget exceeded in 1 of 2 workloads, peak GPU memory +2.00 GiB in 1 of 2 workloads, 1 new finding"
    )
    assert body(BASE, HEAD).splitlines()[0] == heading


def test_the_table_has_both_sides_the_bounds_the_largest_batch_and_the_budget():
    (row,) = [text for text in body(BASE, HEAD).splitlines() if text.startswith("<tr><td><code>gpt</code>")]
    for said in ("8.00 GiB", "<b>10.0 GiB</b> (9.00 GiB to 11.0 GiB)", "<b>+2.00 GiB</b> (+25.0%)", "69 to 36"):
        assert said in row
    assert "\u274c max-increase 512.0 MiB exceeded (+2.00 GiB)" in row


def test_what_one_side_could_not_analyse_says_why_its_step_and_the_batch_of_the_other():
    gpt = workload("gpt", 8 * GIB, sweeps=[sweep({8: GIB}, 69)])
    (row,) = [line for line in body(report(lost()), report(gpt)).splitlines() if "<code>gpt</code>" in line]
    assert "not analysed in base: <code>cannot be imported: ImportError: no kernels</code>" in row
    assert "<code>bf16-amp</code> 69</td>" in row
    (row,) = [line for line in body(report(gpt), report(lost())).splitlines() if "<code>gpt</code>" in line]
    assert "<b>not analysed</b></td><td><code>cannot be imported: ImportError: no kernels</code>" in row
    assert "<td><code>train</code>, <code>bf16-amp</code>" in row
    (row,) = [line for line in body(report(), report(gpt)).splitlines() if "<code>gpt</code>" in line]
    assert "<td>new</td><td><code>bf16-amp</code> 69</td>" in row


def test_what_is_unchanged_is_folded_and_what_grew_names_its_line():
    text = body(BASE, HEAD)
    assert "<details><summary>1 workload unchanged</summary>" in text
    assert "<td><b>+2.00 GiB</b></td><td>1.00 GiB</td><td>3.00 GiB</td><td><code>model.py:12</code></td>" in text
    assert "<details><summary>1 new finding</summary>" in text
    assert "<details><summary>1 finding fixed</summary>" in text


def test_the_chart_has_nothing_in_it_but_numbers():
    chart = body(BASE, HEAD).partition("```mermaid\n")[2].partition("```")[0]
    assert '    x-axis "batch" [4, 8, 16]\n' in chart
    assert "    line [4.00, 8.00, 16.00]\n    line [5.00, 10.00, 20.00]\n" in chart


def test_a_workload_that_failed_says_why():
    text = body(BASE, report(failed("gpt", "gpt.py raised ValueError"), workload("unet", 2 * GIB)))
    assert "<b>not analysed</b></td><td><code>gpt.py raised ValueError</code>" in text


@pytest.mark.parametrize("limit", [60_000, 20_000, 5_000, 2_000, 500, 40])
def test_a_comment_stays_within_the_limit_and_loses_its_details_first(limit):
    many = range(150)
    base = report(*(workload(f"w{n}", GIB, lines=[line(GIB, 5, "a = b")]) for n in many))
    head = report(*(workload(f"w{n}", GIB + n * MIB, lines=[line(2 * GIB, 5, "a = b")]) for n in many))
    text = body(base, head, limit=limit)
    assert len(text) <= limit
    assert text.startswith("### memlint: peak GPU memory up to +149."[:limit])
    assert text.count("<details>") == text.count("</details>")
    assert text.count("<table>") == text.count("</table>")
    if limit == 60_000:
        assert "What changed in <code>w149</code>" in text  # the biggest change is the last to go
        assert "Details are left out" in text


def names(text: str) -> list[str]:
    """The workloads of the table of what has changed, from the top."""
    return re.findall(r"^<tr><td><code>(\w+)", text.partition("</table>")[0], re.MULTILINE)


def test_what_failed_comes_first_then_what_exceeds_its_budget_then_the_largest_changes():
    told = ("small", GIB + MIB), ("shrunk", GIB - 3 * MIB), ("over", GIB + 2 * MIB), ("large", GIB + 5 * MIB)
    same = workload("same", GIB)
    base = report(*(workload(name, GIB) for name, _ in told), workload("broken", GIB), same)
    head = report(
        *(workload(name, nbytes) for name, nbytes in told),
        workload("new", 4 * MIB),
        failed("broken"),
        same,
        over=Budget(max_increase=MIB),
    )
    assert names(body(base, head)) == ["broken", "over", "large", "new", "shrunk", "small"]


@pytest.mark.parametrize("limit", [60_000, 6_000, 1_500])
def test_no_number_of_small_changes_hides_what_failed_and_what_exceeds_its_budget(limit):
    many = [f"w{n}" for n in range(300)]
    base = report(*(workload(name, GIB) for name in [*many, "over", "broken"]))
    head = report(
        *(workload(name, 2 * GIB) for name in many),
        workload("over", GIB + 2 * MIB),
        failed("broken"),
        over=Budget(max_increase=MIB),
    )
    assert names(body(base, head, limit=limit))[:2] == ["broken", "over"]


@pytest.mark.parametrize("length", [1, 60, 300])
def test_as_many_rows_are_shown_as_there_is_room_for(length):
    many = [f"w{n:03}" + "&" * length for n in range(200)]
    base = report(*(workload(name, GIB) for name in many))
    text = body(base, report(*(workload(name, GIB + MIB) for name in many)))
    row = max(len(line) for line in text.splitlines())
    assert len(names(text)) == 100 or len(text) > 60_000 - 2 * row


def test_batches_on_different_gpus_name_their_gpu():
    before, after = sweep({8: GIB}, 69), sweep({8: GIB}, 36).model_copy(update={"gpu": "h100-80gb"})
    text = body(report(workload("gpt", sweeps=[before])), report(workload("gpt", sweeps=[after], gpu="h100-80gb")))
    assert "<code>bf16-amp</code> on <code>h100-80gb</code> none to 36" in text
    assert "<code>bf16-amp</code> on <code>a100-80gb</code> 69 to none" in text
    assert "</code> on <code>" not in body(BASE, HEAD)


def test_bytes_that_no_line_made_are_said_to_have_none():
    def sides(nbytes):
        return report(workload("gpt", nbytes, lines=[LineBytes(path=None, line=None, nbytes=nbytes, num_buffers=1)]))

    assert "<td><b>+1.00 GiB</b></td><td>1.00 GiB</td><td>2.00 GiB</td><td>no line</td>" in body(
        sides(GIB), sides(2 * GIB)
    )


class Elements(HTMLParser):
    """All tags, and the text outside of `code`."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.outside = ""

    def handle_starttag(self, tag, attrs):
        assert not [name for name, _value in attrs if name != "colspan"]
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "code" not in self.open:
            self.outside += data


@pytest.mark.parametrize("sides", ["both", "head", "base"])
def test_strings_of_a_report_are_never_markup(sides):
    base, head = {
        "both": (hostile(), hostile(HOSTILE + "x")),
        "head": (None, hostile()),
        "base": (hostile(), report()),
    }[sides]
    text = body(base, head)
    heading, _, blocks = text.partition("\n")
    assert "script" not in heading
    assert "@" not in heading
    parser = Elements()
    parser.feed(blocks)
    parser.close()
    allowed = {"table", "tr", "th", "td", "details", "summary", "code", "b", "br", "p", "sub"}
    assert parser.tags <= allowed
    for trap in ("@someone", "http://", "www.", "#1 ", "**b**", "](", "alert"):
        assert trap not in parser.outside
    # An empty line would end a block of HTML, and Markdown would begin to mean something in what follows.
    for block in re.split(r"\n\n", text.rstrip())[1:]:
        assert block.startswith(("<table>", "<details>", "<p>", "```mermaid", "</details>"))

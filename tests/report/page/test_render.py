from __future__ import annotations

import base64
import hashlib
import json
import re
from itertools import pairwise
from typing import Any

import html5lib
import pytest

from memlint.report.escaping import one_line
from memlint.report.model import Doubtful, FittingGpu, LineBytes, ModuleBytes, Report, Timeline
from memlint.report.page.filters import by_line_rows
from memlint.report.page.render import render_page
from memlint.report.phrases import spaced
from tests.report.formats.samples import HOSTILE, hostile
from tests.report.page.samples import made_up
from tests.report.sample import REPORT

REPORTS = {
    "sample": REPORT,
    "hostile": hostile(),
    "timeline": made_up(40),
    "hostile timeline": made_up(40, text=HOSTILE),
    "nothing": Report(tool="memlint 0.1.0"),
}


def parsed(page: str) -> Any:
    """The document as a browser reads it; anything that is not conforming HTML is an error."""
    return html5lib.HTMLParser(html5lib.getTreeBuilder("etree"), strict=True, namespaceHTMLElements=False).parse(page)


def texts(element: Any) -> str:
    return " ".join(" ".join(element.itertext()).split())


def embedded(document: Any) -> Any:
    (data,) = [script for script in document.iter("script") if script.get("type") == "application/json"]
    return json.loads(data.text)


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_is_conforming_html_with_one_heading_and_no_level_left_out(name: str) -> None:
    document = parsed(render_page(REPORTS[name]))

    levels = [int(element.tag[1]) for element in document.iter() if re.fullmatch("h[1-6]", str(element.tag))]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("name", REPORTS)
def test_every_id_is_unique_and_every_link_and_reference_leads_somewhere(name: str) -> None:
    document = parsed(render_page(REPORTS[name]))

    ids = [element.get("id") for element in document.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    wanted = [element.get("href")[1:] for element in document.iter("a")]
    for attribute in ("aria-labelledby", "aria-describedby", "data-said"):
        wanted += [element.get(attribute) for element in document.iter() if element.get(attribute)]
    assert wanted
    assert set(wanted) <= set(ids)


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_forbids_all_but_its_own_style_and_script(name: str) -> None:
    document = parsed(render_page(REPORTS[name]))

    (policy,) = [meta.get("content") for meta in document.iter("meta") if meta.get("http-equiv")]
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    (style,) = document.iter("style")
    (script,) = [script for script in document.iter("script") if script.get("type") is None]
    assert allowed["default-src"] == "'none'"
    for directive, element in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert allowed[directive] == f"'sha256-{digest}'"
    assert not [element for element in document.iter() if element.get("style") or element.get("src")]
    assert not [name for element in document.iter() for name in element.attrib if str(name).startswith("on")]


def test_a_hostile_string_is_only_ever_text() -> None:
    page = render_page(REPORTS["hostile timeline"])
    document = parsed(page)

    tags = {str(element.tag) for element in document.iter()}
    assert tags == {str(element.tag) for element in parsed(render_page(REPORTS["timeline"])).iter()}
    assert len(list(document.iter("script"))) == 2
    assert any("<script>alert(1)</script>" in string for string in embedded(document)[0]["strings"])
    assert not re.search(r"[\0\x1b\u202e\u2028\ufffe]", page)


def test_a_hostile_report_has_the_elements_of_a_harmless_one() -> None:
    def shape(report: Report) -> list[str]:
        return sorted(str(element.tag) for element in parsed(render_page(report)).iter())

    assert shape(hostile()) == shape(hostile("harmless"))


def test_the_data_of_the_script_cannot_end_it_and_hold_the_timeline() -> None:
    report = REPORTS["hostile timeline"]
    page = render_page(report)

    raw = page.split('<script type="application/json" id="timelines">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(raw)
    (packed,) = json.loads(raw)
    timeline = report.workloads[0].timeline
    assert isinstance(timeline, Timeline)
    assert packed["events"] == timeline.events
    assert packed["nbytes"] == timeline.nbytes
    assert packed["peak"] == timeline.peak

    def text(position: int) -> str | None:
        return None if position < 0 else packed["strings"][position]

    for number, site in enumerate(timeline.sites):
        columns = packed["sites"]
        assert text(columns["category"][number]) == site.category
        assert text(columns["shape"][number]) == ", ".join(map(str, site.shape))
        assert text(columns["place"][number]) == (site.path and one_line(f"{site.path}:{site.line}"))
    assert packed["buffer_sites"] == timeline.buffer_sites
    stretches = packed["stretches"]
    assert [
        (first, text(phase), step)
        for first, phase, step in zip(stretches["first"], stretches["phase"], stretches["step"], strict=True)
    ] == [(stretch.first, stretch.phase, stretch.step) for stretch in timeline.stretches]


def test_a_page_says_the_verdict_the_numbers_and_what_to_do() -> None:
    said = texts(parsed(render_page(REPORT)))

    for expected in (
        "2 workloads, 1 limit exceeded, 1 not analysed, 2 findings",
        "GPT2 needs 5.31 GiB",
        "fits NVIDIA A100 80GB, 79.0 GiB",
        "budget 5.00 GiB exceeded",
        "5.18 GiB to 5.61 GiB",
        "att = F.softmax(att, dim=-1)",
        "saves 1.00 GiB of the peak",
        "call F.scaled_dot_product_attention",
        "idx is int64 [8, 1024] below 50257, from wte",
        "UNet cannot be built: ValueError: channels must be divisible by 32",
        "the running loss keeps every step's graph alive",
        "image_size has no default",
        "memlint 0.1.0, PyTorch 2.13.0",
    ):
        assert expected in said


def test_a_page_says_why_the_device_figure_is_an_interval() -> None:
    reasons = [
        Doubtful(cause="context", below=102 << 20, above=178 << 20, why="seen on A100; --context SIZE if you know it"),
        Doubtful(cause="cache", below=5 << 20, above=6 << 20, why="what ran before"),
    ]
    first = REPORT.workloads[0]
    assert first.estimate is not None
    estimate = first.estimate.model_copy(update={"doubtful": reasons})
    page = REPORT.model_copy(update={"workloads": [first.model_copy(update={"estimate": estimate})]})
    said = texts(parsed(render_page(page)))
    assert "CUDA context 102.0 MiB 178.0 MiB seen on A100; --context SIZE if you know it" in said
    assert "cache 5.00 MiB 6.00 MiB what ran before" in said


def test_the_index_calls_a_workload_what_its_section_does_and_names_the_target_of_both() -> None:
    net = REPORT.workloads[0].model_copy(update={"name": "net", "target": "net.py::Network"})
    document = parsed(render_page(REPORT.model_copy(update={"workloads": [net, REPORT.workloads[1]]})))

    (row,) = [head for head in document.iter("th") if head.find("a") is not None and head.find("a").text == "net"]
    section = next(each for each in document.iter("article") if f"#{each.get('id')}" == row.find("a").get("href"))
    assert texts(next(section.iter("h2"))).startswith("net needs")
    assert row.find("span").text == "net.py::Network"


def test_spaces_beside_code_in_a_message_are_kept() -> None:
    finding = REPORT.findings[0].model_copy(
        update={"message": "The `Block` modules `a` to `b`; an odd one", "fix": "an ` odd one"}
    )
    said = texts(parsed(render_page(REPORT.model_copy(update={"findings": [finding]}))))

    assert "The Block modules a to b ; an odd one" in said
    assert "an ` odd one" in said


def test_without_a_timeline_the_short_course_is_drawn_and_the_way_to_the_whole_is_said() -> None:
    document = parsed(render_page(REPORT))

    assert "memlint check models/gpt2.py::GPT2 --timeline" in texts(document)
    assert not [figure for figure in document.iter("figure") if figure.get("data-timeline")]
    assert [svg for svg in document.iter() if svg.get("class") == "still"]


def test_tables_have_scopes_for_every_heading_and_names() -> None:
    document = parsed(render_page(made_up(40)))

    assert all(head.get("scope") in {"col", "row"} for head in document.iter("th"))
    regions = [element for element in document.iter() if element.get("role") == "region"]
    assert all(region.get("aria-label") for region in regions)


@pytest.mark.parametrize("num_buffers", [0, 1, 2])
def test_a_timeline_with_next_to_nothing_in_it_is_drawn(num_buffers: int) -> None:
    parsed(render_page(made_up(num_buffers)))


def test_an_estimate_of_no_bytes_is_drawn() -> None:
    text = REPORT.model_dump_json()
    empty = Report.model_validate_json(
        re.sub(r'("(?:nbytes|low|estimate|high|limit|[a-z_]+)":)\d{4,}', r"\g<1>0", text)
    )
    assert empty.workloads[0].estimate is not None
    assert empty.workloads[0].estimate.peak.device.high == 0

    assert "GPT2 needs 0 B" in texts(parsed(render_page(empty)))


def rows_of(table: Any) -> dict[str, list[str]]:
    """Cells of a table's rows, by the first one."""
    cells = [[texts(cell) for cell in row if cell.tag in ("th", "td")] for row in table.iter("tr")]
    return {first: others for first, *others in cells}


def table_called(document: Any, caption: str) -> Any:
    (table,) = [each for each in document.iter("table") if caption in "".join(texts(c) for c in each.iter("caption"))]
    return table


def test_the_legend_has_every_category_that_is_ever_alive() -> None:
    report = made_up(40)
    (workload,) = report.workloads
    at_peak = {"activation": workload.estimate.peak.requested.estimate}
    estimate = workload.estimate.model_copy(update={"categories": at_peak})
    report = report.model_copy(update={"workloads": [workload.model_copy(update={"estimate": estimate})]})
    legend = rows_of(table_called(parsed(render_page(report)), "At the peak"))
    ever = {workload.timeline.sites[site].category for site in workload.timeline.buffer_sites}
    assert len(ever) > 1
    assert set(legend) - {"category"} == {spaced(category) for category in ever | {"activation"}}
    assert legend["parameter"] == ["0 B", "not then"]


def test_words_of_the_code_are_no_words_of_the_page() -> None:
    other = {"parameter": 300, "other": 100}
    estimate = REPORT.workloads[0].estimate.model_copy(update={"categories": other})
    workload = REPORT.workloads[0].model_copy(update={"estimate": estimate})
    document = parsed(render_page(REPORT.model_copy(update={"workloads": [workload]})))
    text = texts(document)
    assert "(found in the file)" in text
    assert "discovered" not in text
    assert rows_of(table_called(document, "At the peak"))["made before the steps"] == ["100 B", "25%"]
    assert "set-up" in rows_of(table_called(document, "Highest requested bytes by phase"))
    assert "other" not in rows_of(table_called(document, "Highest requested bytes by phase"))


def test_what_no_line_makes_is_listed_by_module_among_the_lines() -> None:
    modules = [
        ModuleBytes(
            module=f"h.{n}.attn", type="Attention", nbytes=900, num_buffers=3,
            categories={"parameter": 400, "optimizer_state": 200, "activation": 300},
        )
        for n in range(3)
    ]  # fmt: skip
    lines = [LineBytes(path="a.py", line=n, nbytes=nbytes, num_buffers=1) for n, nbytes in ((1, 5000), (2, 100))]
    estimate = REPORT.workloads[0].estimate.model_copy(update={"by_module": modules, "by_line": lines})
    rows = by_line_rows(estimate)
    assert [(row.line.line if row.line else row.module, row.nbytes) for row in rows] == [
        *((1, 5000), ("h.*.attn", 1800), (2, 100))
    ]
    assert rows[1].categories == {"parameter": 1200, "optimizer_state": 600}
    workload = REPORT.workloads[0].model_copy(update={"estimate": estimate})
    text = texts(parsed(render_page(REPORT.model_copy(update={"workloads": [workload]}))))
    assert "no line parameter 1.17 KiB, optimizer state 600 B h.*.attn parameter, optimizer state" in text


def test_the_gpus_that_it_fits_into_are_named() -> None:
    gpus = [FittingGpu(name="t4", title="NVIDIA T4", total_nbytes=1, price=0.35)]
    workload = REPORT.workloads[0].model_copy(update={"fitting": gpus})
    text = texts(parsed(render_page(REPORT.model_copy(update={"workloads": [workload]}))))
    assert "By the kernels of a100-80gb it fits into t4 (0.35)." in text

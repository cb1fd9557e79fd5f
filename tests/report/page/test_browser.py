"""The page in a real browser, which has to be on the machine: on Debian `apt-get install chromium`."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING

import pytest

from memlint.api.frame import framed
from memlint.base.units import format_nbytes
from memlint.report.page.render import render_page
from memlint.report.page.timeline import CATEGORIES, tick_step
from memlint.report.phrases import spaced
from tests.npm.packages import installed
from tests.report.formats.samples import HOSTILE, hostile
from tests.report.page.browser import chromium, opened
from tests.report.page.pictures import make
from tests.report.page.samples import analysed, live, made_up
from tests.report.sample import REPORT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from memlint.report.model import Report, Timeline

pytestmark = pytest.mark.slow
MODELS = ("gpt2", "unet")
AXIS = 40


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


def timeline_of(report: Report) -> Timeline:
    timeline = report.workloads[0].timeline
    assert timeline is not None
    return timeline


def open_at(timeline: Timeline, event: int) -> list[int]:
    """Buffers that are open after the event, in the order in which they opened."""
    found: dict[int, None] = {}
    for each in timeline.events[: event + 1]:
        if each >= 0:
            found[each] = None
        else:
            del found[~each]
    return list(found)


def milliseconds_to_open(page: Page) -> float:
    """From the request to the timeline that can be pointed at; the best of three, for other work takes time as well."""
    page.add_init_script(
        """new MutationObserver(() => { window.drawn ??= performance.now(); })
             .observe(document, { subtree: true, attributes: true, attributeFilter: ["data-top"] });"""
    )
    times = []
    for _time in range(3):
        page.reload()
        page.wait_for_selector(".live[data-top]")
        times.append(float(page.evaluate("window.drawn")))
    return min(times)


def point_at(page: Page, x: float, y: float) -> None:
    box = page.locator(".live").bounding_box()
    assert box
    page.mouse.move(box["x"] + x, box["y"] + y)


def numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)]


def shown_range(page: Page) -> tuple[int, int, float]:
    data = page.locator(".live").evaluate("element => ({...element.dataset})")
    return int(data["from"]), int(data["to"]), float(data["top"])


def check_hover(page: Page, timeline: Timeline, totals: list[int], x: int, y: int) -> bool:
    """Point there in the view of single Buffers, and hold what is said against the Timeline; whether it was a Buffer."""
    first, end, top = shown_range(page)
    box = page.locator(".live").bounding_box()
    assert box
    width, height = round(box["width"]), round(box["height"] - AXIS)
    point_at(page, x + 0.5, y + 0.5)
    where = page.locator(".readout .where").inner_text()
    event = numbers(where)[0]
    column = range(
        first + int(x * (end - first) / width),
        max(first + int(x * (end - first) / width) + 1, first + int((x + 1) * (end - first) / width)),
    )
    assert event in column
    assert totals[event] == max(totals[column.start : column.stop])
    assert where.endswith(f"{format_nbytes(totals[event])} live")

    # The stack from the bottom: what is too small by category, then the Buffers in the order in which they opened.
    alive = open_at(timeline, event)
    big = [buffer for buffer in alive if timeline.nbytes[buffer] >= top / height]
    small = [buffer for buffer in alive if timeline.nbytes[buffer] < top / height]
    stack: list[tuple[str, int, int | None]] = []
    for category in CATEGORIES:
        part = [b for b in small if timeline.sites[timeline.buffer_sites[b]].category == category]
        stack.append((category, sum(timeline.nbytes[b] for b in part), None))
    stack += [(timeline.sites[timeline.buffer_sites[b]].category, timeline.nbytes[b], b) for b in big]
    below = 0
    title = page.locator(".readout .what").inner_text().strip()
    for category, nbytes, buffer in stack:
        lower, upper = (round(height * (1 - bound / top)) for bound in (below, below + nbytes))
        below += nbytes
        if not upper <= y < lower:
            continue
        assert title.startswith(spaced(category))
        assert title.endswith(format_nbytes(nbytes))
        rows = page.locator(".readout tr")
        if buffer is None:
            return False
        assert rows.count() == 1
        cells = rows.locator("td").all_inner_texts()
        site = timeline.sites[timeline.buffer_sites[buffer]]
        assert cells[0] == format_nbytes(timeline.nbytes[buffer])
        assert cells[1] == f"{site.dtype}[{', '.join(map(str, site.shape))}]"
        assert cells[2].startswith(site.name)
        assert (f"{site.path}:{site.line}" in cells[2]) == (site.path is not None)
        assert cells[3] == site.module
        assert cells[4] == site.op
        lives = [timeline.events.index(buffer)] + (
            [timeline.events.index(~buffer)] if ~buffer in timeline.events else []
        )
        assert set(lives) <= set(numbers(cells[5]))
        assert cells[5].endswith("to the end") == (len(lives) == 1)
        return True
    assert title.startswith("all")
    return False


@pytest.mark.parametrize("model", MODELS)
def test_the_page_of_a_real_model_is_small_quick_and_quiet(browser: Browser, file: Path, model: str) -> None:
    assert len(render_page(analysed(model)).encode()) < 1_000_000
    with opened(browser, analysed(model), file) as page:
        assert milliseconds_to_open(page) < 1000
        assert page.locator(".live").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 1280


@pytest.mark.parametrize("model", MODELS)
def test_the_pointer_is_on_the_buffer_that_the_report_has_there(browser: Browser, file: Path, model: str) -> None:
    timeline = timeline_of(analysed(model))
    totals = live(timeline.nbytes, timeline.events)
    with opened(browser, analysed(model), file) as page:
        page.get_by_role("radio", name="single Buffers").check()
        found = [check_hover(page, timeline, totals, x, y) for x in range(5, 860, 130) for y in range(30, 339, 44)]
        page.get_by_role("button", name="Step 1").click()
        found += [check_hover(page, timeline, totals, x, y) for x in range(5, 860, 200) for y in range(30, 339, 60)]
        assert found.count(True) > 10


def test_each_of_several_timelines_has_its_own_buffers(browser: Browser, file: Path) -> None:
    one, other = (made_up(200, seed=seed).workloads[0] for seed in (1, 2))
    between = REPORT.workloads[0]
    with opened(browser, REPORT.model_copy(update={"workloads": [one, between, other]}), file) as page:
        assert page.locator(".live").count() == 2
        for name, workload in (("w0", one), ("w2", other)):
            assert workload.timeline is not None
            assert workload.estimate is not None
            page.locator(f"#{name} .live").scroll_into_view_if_needed()
            page.wait_for_selector(f"#{name} .live[data-top]")
            page.locator(f"#{name} .live").focus()
            page.keyboard.press("p")
            where = page.locator(f"#{name} .readout .where").inner_text()
            assert numbers(where)[:2] == [workload.timeline.peak, len(workload.timeline.events)]
            assert where.endswith(f"{format_nbytes(workload.estimate.peak.requested.estimate)} live")


def test_in_the_view_of_categories_the_biggest_buffers_of_the_band_are_listed(browser: Browser, file: Path) -> None:
    report = analysed("gpt2")
    timeline, estimate = timeline_of(report), report.workloads[0].estimate
    assert estimate is not None
    with opened(browser, report, file) as page:
        page.locator(".live").focus()
        page.keyboard.press("p")
        seen = {}
        for _press in range(12):
            title = page.locator(".readout .what").inner_text().strip()
            seen[title.split(",")[0]] = (
                title.split("  ")[-1].split(" Buffers ")[-1],
                page.locator(".readout tr").evaluate_all("rows => rows.map(row => Number(row.dataset.nbytes))"),
            )
            page.keyboard.press("ArrowDown")
        assert numbers(page.locator(".readout .where").inner_text())[0] == timeline.peak
        for category in ("activation", "temporary", "optimizer_state", "parameter"):
            size, rows = seen[category.replace("_", " ")]
            assert size == format_nbytes(estimate.categories[category])
            alive = [
                timeline.nbytes[buffer]
                for buffer in open_at(timeline, timeline.peak)
                if timeline.sites[timeline.buffer_sites[buffer]].category == category
            ]
            assert rows == sorted(alive, reverse=True)[:5]


def test_the_keyboard_zooms_moves_and_tells_a_screen_reader(browser: Browser, file: Path) -> None:
    report = analysed("gpt2")
    timeline = timeline_of(report)
    with opened(browser, report, file) as page:
        page.get_by_role("radio", name="single Buffers").check()
        page.locator(".live").focus()
        page.keyboard.press("p")
        for _press in range(4):
            page.keyboard.press("+")
        first, end, _top = shown_range(page)
        assert first <= timeline.peak < end
        assert end - first == pytest.approx(len(timeline.events) / 16, abs=2)
        page.keyboard.press("ArrowDown")
        page.wait_for_function("document.querySelector('[role=status]').textContent.includes('float32')")
        assert "step 1, backward" in page.locator("[role=status]").inner_text()
        before = numbers(page.locator(".readout .where").inner_text())[0]
        page.keyboard.press("ArrowRight")
        assert numbers(page.locator(".readout .where").inner_text())[0] > before
        page.keyboard.press("End")
        assert numbers(page.locator(".readout .where").inner_text())[0] == len(timeline.events) - 1
        page.keyboard.press("0")
        assert shown_range(page)[:2] == (0, len(timeline.events))


def test_dragging_zooms_and_a_double_click_shows_all(browser: Browser, file: Path) -> None:
    report = made_up(3000)
    events = len(timeline_of(report).events)
    with opened(browser, report, file) as page:
        point_at(page, 200, 100)
        page.mouse.down()
        point_at(page, 400, 160)
        page.mouse.up()
        first, end, _top = shown_range(page)
        box = page.locator(".live").bounding_box()
        assert box
        assert first == pytest.approx(events * 200 / box["width"], abs=3)
        assert end == pytest.approx(events * 400 / box["width"], abs=3)
        page.locator(".live").dblclick(position={"x": 10, "y": 10})
        assert shown_range(page)[:2] == (0, events)


def test_a_hundred_thousand_events_open_in_a_second_and_follow_the_pointer(browser: Browser, file: Path) -> None:
    report = made_up(52_000)
    assert len(timeline_of(report).events) > 98_000
    with opened(browser, report, file) as page:
        assert milliseconds_to_open(page) < 1000
        page.get_by_role("radio", name="single Buffers").check()
        spent = page.evaluate(
            """() => {
              const live = document.querySelector(".live");
              const box = live.getBoundingClientRect();
              const began = performance.now();
              for (let step = 0; step < 50; step++) {
                live.dispatchEvent(new PointerEvent("pointermove",
                  {clientX: box.left + 10 + 15 * step, clientY: box.top + 150 + step, bubbles: true}));
              }
              return (performance.now() - began) / 50;
            }"""
        )
        assert spent < 50
        assert page.locator(".readout .where").inner_text().startswith("Event")


@pytest.mark.parametrize("report", [hostile(), made_up(300, text=HOSTILE)], ids=["report", "timeline"])
def test_hostile_strings_are_shown_as_text_and_do_nothing(browser: Browser, file: Path, report: Report) -> None:
    with opened(browser, report, file) as page:
        if report.workloads[0].timeline is not None:
            page.get_by_role("radio", name="single Buffers").check()
            page.locator(".live").focus()
            page.keyboard.press("p")
            page.keyboard.press("ArrowDown")
            assert "<script>alert(1)</script>" in page.locator(".readout").inner_text()
        else:
            assert "<script>alert(1)</script>" in page.locator("main").inner_text()
        page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
        for tile in page.locator(".treemap a:visible").all()[:5]:
            tile.focus()
        page.wait_for_timeout(700)
        assert page.evaluate("document.scripts.length") == 2
        assert page.locator("img, iframe, object, embed, form, base").count() == 0


def test_the_switch_chooses_light_or_dark_and_is_kept(browser: Browser, file: Path) -> None:
    def background(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    with opened(browser, made_up(300), file, color_scheme="light") as page:
        assert background(page) == "rgb(255, 255, 255)"
        before = page.locator(".live canvas").first.evaluate("canvas => canvas.toDataURL()")
        page.get_by_label("Colours").select_option("dark")
        assert background(page) == "rgb(15, 18, 22)"
        assert page.locator(".live canvas").first.evaluate("canvas => canvas.toDataURL()") != before
        page.reload()
        assert background(page) == "rgb(15, 18, 22)"
        page.get_by_label("Colours").select_option("")
        assert background(page) == "rgb(255, 255, 255)"


def test_columns_sort_by_number_and_by_text(browser: Browser, file: Path) -> None:
    with opened(browser, analysed("gpt2"), file) as page:
        table = page.locator("table.sortable").first
        sizes = [int(str(cell.get_attribute("data-key"))) for cell in table.locator("tbody td:first-child").all()]
        table.get_by_role("button", name="bytes").click()
        assert [
            int(str(cell.get_attribute("data-key"))) for cell in table.locator("tbody td:first-child").all()
        ] == sorted(sizes)
        assert table.locator("th").first.get_attribute("aria-sort") == "ascending"
        table.get_by_role("button", name="line").click()
        lines = [
            numbers(text.split("\n")[0])[-1]
            for text in table.locator("tbody .where-made").all_inner_texts()
            if ".py:" in text
        ]
        assert lines == sorted(lines)


def test_a_tile_says_what_it_is_and_leads_to_its_row(browser: Browser, file: Path) -> None:
    with opened(browser, analysed("gpt2"), file) as page:
        page.locator(".switch input.by-line").check()
        first = page.locator(".map-line .treemap a").first
        first.focus()
        assert "gpt2.py:101" in page.locator(".map-line .said").inner_text()
        page.keyboard.press("ArrowRight")
        assert "gpt2.py:53" in page.locator(".map-line .said").inner_text()
        page.locator(".switch input.by-module").check()
        row = page.locator("#w0-modules-3")
        assert not row.is_visible()
        page.locator('.map-module .treemap a[href="#w0-modules-0"]').first.focus()
        page.keyboard.press("Enter")
        assert page.locator("#w0-modules-0").is_visible()


def test_without_scripts_all_but_what_needs_them_is_there(browser: Browser, file: Path) -> None:
    with opened(browser, analysed("gpt2"), file, java_script_enabled=False) as page:
        assert page.locator(".still").is_visible()
        assert page.locator(".still path").count() >= 5
        for control in (".live", ".toolbar", ".readout", "#theme"):
            assert not page.locator(control).is_visible()
        page.locator(".switch input.by-line").check()
        assert page.locator(".map-line .treemap").is_visible()
        page.locator("summary", has_text="Single Buffers").click()
        assert page.locator("table.sortable").last.is_visible()


def test_paper_has_the_drawing_both_maps_and_the_tables_and_no_controls(browser: Browser, file: Path) -> None:
    with opened(browser, analysed("gpt2"), file, color_scheme="dark") as page:
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        for part in (".still", ".map-line", ".map-module", ".heat"):
            assert page.locator(part).is_visible()
        for control in (".live", ".toolbar", ".readout", "#theme"):
            assert not page.locator(control).is_visible()
        printed = page.pdf(format="A4")
        assert printed.startswith(b"%PDF")
        assert 2 <= printed.count(b"/Type /Page\n") <= 20


def test_sizes_are_written_as_everywhere_else(browser: Browser) -> None:
    sizes = [0, 1, 1023, 1024, 1152, 1280, 1664, 10_240, 2**20 - 1, 2**20, 2**30 + 2**27, 9 * 2**30 + 5 * 2**27]
    sizes += [10 * 2**30 + 2**28, 1023 * 2**20 + 2**19, 2**30 - 2**18, 2**30 - 1, 2**40 * 3 // 7, 5 * 2**50]
    script = resources.files("memlint.report.page").joinpath("assets", "sizes.js").read_text("utf-8")
    page = browser.new_page()
    assert page.evaluate(f"sizes => {{ {script}; return sizes.map(formatBytes); }}", sizes) == [
        format_nbytes(nbytes) for nbytes in sizes
    ]
    page.close()


def test_ticks_are_those_of_the_drawing_without_scripts(browser: Browser) -> None:
    tops = [1, 900, 1023, 1024, 1100, 5 * 2**20, 700 * 2**20, 1638 * 2**20, 9 * 2**30, 300 * 2**30, 3 * 2**50]
    script = resources.files("memlint.report.page").joinpath("assets", "sizes.js").read_text("utf-8")
    page = browser.new_page()
    drawn = page.evaluate(f"tops => {{ {script}; return tops.map(top => ticks(top).map(([, text]) => text)); }}", tops)
    page.close()
    for top, texts in zip(tops, drawn, strict=True):
        size, unit, name = tick_step(top)
        assert texts == [f"{number * size:g} {name}" for number in range(1, int(top / (size * unit)) + 1)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_real_models_can_be_made_and_are_small(browser: Browser, tmp_path: Path, scheme: str) -> None:
    files = make(browser, tmp_path, dict.fromkeys(MODELS, scheme), whole=True)

    assert len({file.read_bytes() for file in files}) == len(MODELS)
    assert all(20_000 < file.stat().st_size < 1_000_000 for file in files)


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_reaches_beyond_the_screen(browser: Browser, file: Path, width: int) -> None:
    for report in (analysed("unet"), REPORT, hostile(), hostile("x" * 300)):
        with opened(browser, report, file, viewport={"width": width, "height": 800}) as page:
            assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return (installed(tmp_path_factory.mktemp("npm")) / "axe-core" / "axe.min.js").read_text("utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(browser: Browser, axe: str, file: Path, scheme: str) -> None:
    for report in (analysed("gpt2"), analysed("unet"), REPORT):
        with opened(browser, report, file, color_scheme=scheme, bypass_csp=True) as page:
            page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
            page.evaluate(axe)
            tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
            found = page.evaluate("tags => axe.run(document, { runOnly: tags })", tags)
            assert found["violations"] == []
            assert len(found["passes"]) > 40


def test_the_frame_of_a_notebook_draws_its_timeline_though_nothing_scrolls_there(browser: Browser, file: Path) -> None:
    file.write_text(f"<!DOCTYPE html><div style='height: 5000px'></div>{framed(made_up(50))}", encoding="utf-8")
    page = browser.new_page()
    try:
        page.goto(file.as_uri())
        page.frame_locator("iframe").locator(".live[data-top]").wait_for(state="attached", timeout=20_000)
    finally:
        page.close()

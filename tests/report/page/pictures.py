"""Pictures of pages. `python -m tests.report.page.pictures` makes those of the documentation."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from PIL import Image

from tests.report.page.browser import chromium, opened
from tests.report.page.samples import ROOT, analysed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playwright.sync_api import Browser, Page

DOCUMENTED = {"gpt2": "light", "unet": "dark"}


def look_into(page: Page, model: str) -> None:
    """The pointer on the activations of GPT-2's second step, or on one Buffer of another model."""
    if model == "gpt2":
        page.locator(".live").hover(position={"x": 588, "y": 220})
    else:
        page.get_by_role("radio", name="single Buffers").check()
        page.locator(".live").hover(position={"x": 590, "y": 135})


def make(browser: Browser, folder: Path, schemes: Mapping[str, str], *, whole: bool) -> list[Path]:
    """A PNG of the page of each model: all of it, or what one sees first."""
    files = []
    for model, scheme in schemes.items():
        file = folder / f"report-{model}-{scheme}.png"
        with (
            TemporaryDirectory() as directory,
            opened(browser, analysed(model), Path(directory, "report.html"), color_scheme=scheme) as page,
        ):
            page.set_viewport_size({"width": 1280, "height": 1120})
            look_into(page, model)
            page.screenshot(path=file, full_page=whole)
        files.append(file)
    return files


if __name__ == "__main__":
    with chromium() as found:
        for picture in make(found, ROOT / "docs" / "pictures", DOCUMENTED, whole=False):
            # Half the bytes; the page has fewer colours.
            Image.open(picture).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)

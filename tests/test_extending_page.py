"""Pages for contributors name files that exist; tests/whatif/test_extending.py runs the Change of docs/extending.md."""

import re
from pathlib import Path

import pytest

from memlint.memory import devices

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
PAGES = ("docs/extending.md", "docs/architecture.md", "CONTRIBUTING.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_files_and_folders_that_a_page_names_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = {
        path
        for path in re.findall(r"(?:`| )((?:memlint|rules|libraries|tests|docs)/[\w./]+)", text)
        if "NAME" not in path
    }
    assert paths
    assert {path for path in paths if not (ROOT / path).exists()} == set()


def test_its_line_of_a_gpu_is_one_of_the_catalogue():
    (line,) = re.findall(r"^ +(Device\(.*\)),$", PAGE, re.MULTILINE)
    written = eval(line, vars(devices))
    assert devices.CATALOGUE[written.name] == written

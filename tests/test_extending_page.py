"""docs/extending.md names what is there; tests/whatif/test_extending.py runs its Change."""

import re
from pathlib import Path

import pytest

from memlint.memory import devices

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
PATHS = sorted({path for path in re.findall(r"`((?:memlint|rules|libraries|tests|docs)/[\w./]+)`", PAGE) if "NAME" not in path})


@pytest.mark.parametrize("path", PATHS)
def test_a_file_or_folder_that_it_names_is_there(path):
    assert (ROOT / path).exists()


def test_its_line_of_a_gpu_is_one_of_the_catalogue():
    (line,) = re.findall(r"^ +(Device\(.*\)),$", PAGE, re.MULTILINE)
    written = eval(line, vars(devices))
    assert devices.CATALOGUE[written.name] == written

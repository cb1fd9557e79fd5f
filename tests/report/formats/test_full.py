from __future__ import annotations

from pathlib import Path

import pytest

from memlint.report.formats.full import render_full
from tests.report.sample import REPORT


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def full(path: str, line: int = 2, column: int = 5) -> str:
    finding = REPORT.findings[0].model_copy(update={"path": path, "line": line, "column": column})
    return render_full(REPORT.model_copy(update={"workloads": [], "findings": [finding]}))


def test_the_caret_stands_below_the_place():
    Path("a.py").write_text("x = 1\n\ty = f(x)\nz = 2\n")
    lines = full("a.py", 2, 6).splitlines()
    assert lines[3:7] == ["1 | x = 1", "2 |     y = f(x)", "  |         ^", "3 | z = 2"]


@pytest.mark.parametrize("line", [1, 3, 99, 1000])
def test_places_at_the_ends_and_beyond_them_are_no_mistake(line):
    Path("a.py").write_text("x = 1\ny = 2\nz = 3")
    text = full("a.py", line, 1)
    assert f"--> a.py:{line}:1" in text
    assert ("^" in text) == (line <= 3)


@pytest.mark.parametrize("path", ["../secret.py", "{outside}/secret.py", "link.py", "notes.txt"])
def test_no_file_is_shown_that_is_not_python_of_this_directory(path, tmp_path):
    for file in (tmp_path / "secret.py", Path("notes.txt")):
        file.write_text("a\nsecret\nb\n")
    Path("link.py").symlink_to(tmp_path / "secret.py")
    assert "secret\n" not in full(path.format(outside=tmp_path))


def test_a_file_in_another_encoding_and_a_broken_one_are_no_mistake():
    Path("latin.py").write_bytes(b"# coding: latin-1\nname = '\xe9'\n")
    assert "2 | name = '\u00e9'" in full("latin.py")
    Path("broken.py").write_bytes(b"a\nb\xff\n")
    assert "-->" in full("broken.py")

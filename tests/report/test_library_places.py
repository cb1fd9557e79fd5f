"""Every form of a Report shows the project's line first, and beside it the library's that ran in its call."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from memlint.compare.changes import compare
from memlint.report.exports import EXPORTS, export
from memlint.report.formats import FORMATS, render
from memlint.report.model import Report
from memlint.report.page.render import render_page
from memlint.report.terminal import render_text
from memlint.report.text_style import TextStyle

pytestmark = pytest.mark.usefixtures("copied_pythons")

LAYER = "def square(x):\n    y = x * x\n    return y\n"
MODEL = """import torch
from some_package.layer import square

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(1024))

    def forward(self, x):
        return square(x * self.weight)

def memlint_workload():
    return Model(), {"x": torch.rand(4096, 1024)}
"""
BOTH = "model.py:10 (in some_package/layer.py:2)"


@cache
def analysed(layer: str = LAYER, model: str = MODEL) -> Report:
    """The Report of a model whose peak, over its budget, is in a function of an installed package."""
    with TemporaryDirectory() as directory:
        package = Path(directory, "lib", "site-packages", "some_package")
        package.mkdir(parents=True)
        package.joinpath("__init__.py").touch()
        package.joinpath("layer.py").write_text(layer)
        Path(directory, "model.py").write_text(model)
        options = ["--no-cache", "--timeline", "--graph", "--budget", "1MiB", "--mode", "inference"]
        command = ["check", "model.py", *options]
        paths = os.pathsep.join([str(package.parent), *sys.path])
        done = subprocess.run(
            [sys.executable, "-m", "memlint", *command, "--output-format", "json"],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr.decode()
        return Report.model_validate_json(done.stdout)


def test_records_hold_the_line_of_the_project_and_that_of_the_library():
    report = analysed()
    (workload,) = report.workloads
    assert workload.estimate is not None
    (line,) = [line for line in workload.estimate.by_line if line.library]
    (finding,) = [finding for finding in report.findings if finding.code == "MEM010"]
    for each in (workload.estimate, line, finding):
        assert (each.path, each.line) == ("model.py", 10)
        assert each.library is not None
        assert each.library.path.endswith("some_package/layer.py")
        assert (each.library.line, each.library.function) == (2, "square")
    assert line.source == "y = x * x"


def test_a_line_of_the_project_itself_has_no_field_of_a_library():
    lines = analysed().model_dump(mode="json")["workloads"][0]["estimate"]["by_line"]
    own = [line for line in lines if line["source"].startswith("return square")]
    assert [line["path"] for line in own] == ["model.py"]
    assert "library" not in own[0]


@pytest.mark.parametrize("output_format", sorted(set(FORMATS) - {"json", "json-lines"}))
def test_every_format_shows_both(output_format):
    text = render(analysed(), output_format, list)
    assert "some_package/layer.py:2)" in text
    assert "model.py" in text
    assert "site-packages" not in text


def test_the_terminal_and_the_page_show_both():
    text = render_text(analysed(), TextStyle(width=200))
    assert f"At the peak, in forward at {BOTH}" in text
    assert "model.py:10:1 (in some_package/layer.py:2): MEM010" in text
    assert render_page(analysed()).count(BOTH) >= 3


@pytest.mark.parametrize("form", [*EXPORTS, "graph"])
def test_every_export_shows_both(form):
    exported = export(analysed(), form)
    assert b"model.py" in exported
    assert b"layer.py" in exported


def test_a_comment_on_the_line_of_the_project_takes_the_finding_away():
    model = MODEL.replace("(x * self.weight)", "(x * self.weight)  # memlint: ignore[MEM010]")
    assert "MEM010" not in {finding.code for finding in analysed(model=model).findings}


def test_lines_of_a_library_that_one_line_of_the_project_calls_are_compared_each_with_its_own():
    more = LAYER.replace("return y", "z = y.exp()\n    return z * y")
    (change,) = compare(analysed(), analysed(layer=more)).workloads
    grown = {(line.library.line if line.library else None): line.head - line.base for line in change.lines}
    assert all(line.path == "model.py" for line in change.lines)
    assert 2 not in grown
    assert grown[3] > 0

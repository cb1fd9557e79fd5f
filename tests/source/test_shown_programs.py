"""Programs of the code that documents and notebooks show: which blocks they consist of, and which come first."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from memlint.source.project_files import ProjectFiles
from memlint.source.shown_programs import shown_programs

if TYPE_CHECKING:
    from pathlib import Path


def programs(folder: Path, *names: str) -> list[str]:
    """The programs of a project that lead to its package `net`, without their empty lines."""
    files = ProjectFiles(folder, folder / "net.py")
    found = shown_programs(files, frozenset(names), lambda program: "net" in program.words)
    return ["\n".join(line for line in each.code.split("\n") if line) for each in found]


def readme(folder: Path, *blocks: str, language: str = "python") -> None:
    (folder / "README.md").write_text(
        "\n\n".join(f"Text\n```{language}\n{dedent(each).strip()}\n```" for each in blocks)
    )


def test_a_block_has_the_earlier_ones_that_give_its_names_and_the_later_ones_that_call_what_it_makes(tmp_path):
    given, other = "from net import Net\nwidth = 7", "import json\nprint(json.dumps(1))"
    made, called, saved = "model = Net(width)\nmodel.eval()", "y = model(3)", "upload(model)"
    readme(tmp_path, given, other, made, called, saved)
    assert programs(tmp_path, "Net")[0] == "\n".join((given, made, called))


def test_each_line_stands_at_its_own_number(tmp_path):
    readme(tmp_path, "from net import Net", "model = Net()\nmodel(1)")
    (command,) = shown_programs(ProjectFiles(tmp_path, tmp_path / "net.py"), {"Net"}, lambda program: True)
    written, lines = (tmp_path / "README.md").read_text().split("\n"), command.code.split("\n")
    assert [line for line in lines if line] == [written[2], written[7], written[8]]
    assert (command.line, written[command.line - 1]) == (8, "model = Net()")


def test_what_names_the_class_comes_first_and_then_what_lacks_nothing_and_uses_what_it_makes(tmp_path):
    readme(
        tmp_path,
        "import net\nx = net.other(known_to_nobody)\nx()",
        "import net\nx = net.other()",
        "import net\nx = net.other()\nx()",
        "from net import Net\nx = Net()\nx()",
    )
    assert [each.split("\n")[1] for each in programs(tmp_path, "Net")] == [
        "x = Net()", "x = net.other()", "x = net.other(known_to_nobody)", "x = net.other()",
    ]  # fmt: skip
    assert len(programs(tmp_path, "Net")[1].split("\n")) == 3


def test_an_example_may_leave_out_what_everybody_imports_and_what_its_reader_fills_in(tmp_path):
    readme(
        tmp_path,
        "from net import Net\nmodel = Net(<size>)\nmodel.show(<your_image>, np.ones(2), torch.ones(3))",
        language="",
    )
    first, _made, shown = programs(tmp_path, "Net")[0].split("\n")[0], *programs(tmp_path, "Net")[0].split("\n")[2:]
    assert first == "import numpy as np; import torch"
    assert "Net(None)" in _made
    assert shown == "model.show(__import__('numpy').zeros((480, 640, 3), 'uint8'), np.ones(2), torch.ones(3))"


def test_a_fence_on_one_line_opens_no_code(tmp_path):
    (tmp_path / "README.md").write_text(
        "```pip install net```, then:\n```python\nimport net\nx = net.x()\nx()\n```\nText, and no code\n"
    )
    assert programs(tmp_path) == ["import net\nx = net.x()\nx()"]


def test_a_notebook_is_one_program_without_its_magics(tmp_path):
    cells = [["!pip install net\n", "import net\n"], ["x = net.Net()\n", "x(2)"]]
    notebook = {
        "cells": [{"cell_type": "code", "source": each} for each in cells],
        "nbformat": 4,
    }
    (tmp_path / "demo.ipynb").write_text(json.dumps(notebook, indent=1))
    assert programs(tmp_path, "Net") == ["pass\nimport net\nx = net.Net()\nx(2)"]


@pytest.mark.parametrize(
    "block", ["from net import Net", "class Net:\n    pass\nNet()", "from net import Net\nNet(<<)"]
)
def test_what_calls_nothing_of_the_project_or_is_not_python_is_no_program(tmp_path, block):
    readme(tmp_path, block)
    files = ProjectFiles(tmp_path, tmp_path / "net.py")
    assert not list(
        shown_programs(files, {"Net"}, lambda program: "net" in program.imports.values() or bool(program.imports))
    )

"""Notebooks as programs: code cells in order, magics left out, places by cell and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memlint.source.files import Unreadable
from memlint.source.notebooks import program_of, read_notebook


def lines_of(*cells):
    """The lines of a program with their places, but those that are added."""
    notebook = program_of([(str(number), text) for number, text in enumerate(cells, 1)], Path())
    pairs = zip(notebook.text.splitlines(), notebook.places, strict=True)
    return [(text, place) for text, place in pairs if place is not None]


def test_lines_keep_their_cell_and_number():
    assert lines_of("a = 1\n\nb = 2", "c = 3") == [
        ("a = 1", ("1", 1)),
        ("", ("1", 2)),
        ("b = 2", ("1", 3)),
        ("c = 3", ("2", 1)),
    ]


@pytest.mark.parametrize(
    ("cell", "program"),
    [
        ("%matplotlib inline\nx = 1", ["pass", "x = 1"]),
        ("if x:\n    !ls\ny = 2", ["if x:", "    pass", "y = 2"]),
        ("files = !ls *.py\nn = len(files)", ["files = None", "n = len(files)"]),
        ("model?\n??model\nx = 1", ["pass", "pass", "x = 1"]),
        ("!pip install \\\n    torch\nx = 1", ["pass", "", "x = 1"]),
        ("%%bash\nls", ["", ""]),
        ("%%time\nx = 1", ["pass", "x = 1"]),
        ("%time train(net, 3)\n%timeit -n 3 net(x)\n%time", ["train(net, 3)", "3 net(x)", "pass"]),
        ("text = '''\n%not a magic\n'''", ["text = '''", "%not a magic", "'''"]),
        ("x = 5\nx %= 3\ny = x \\\n% 2", ["x = 5", "x %= 3", "y = x \\", "% 2"]),
    ],
)
def test_what_is_not_python_does_nothing(cell, program):
    assert [text for text, _place in lines_of(cell)] == program


def test_imports_of_the_future_come_first():
    notebook = program_of([("1", "x = 1"), ("2", "from __future__ import annotations\ny = 2")], Path())
    compile(notebook.text, "notebook", "exec")
    assert notebook.place(1) == ("2", 1)


def test_modules_beside_the_notebook_can_be_imported(tmp_path, monkeypatch):
    (tmp_path / "beside_the_notebook.py").write_text("value = 3\n")
    notebook = program_of([("1", "from beside_the_notebook import value\ndisplay(value)\nget_ipython()")], tmp_path)
    namespace = {}
    monkeypatch.setattr("sys.path", [])
    exec(compile(notebook.text, "notebook", "exec"), namespace)
    assert namespace["value"] == 3


def test_files_of_both_formats_are_read(tmp_path):
    file = tmp_path / "a.ipynb"
    cells = [{"cell_type": "markdown", "source": ["# A\n"]}, {"cell_type": "code", "source": ["a = 1\n", "b = 2"]}]
    file.write_text(json.dumps({"cells": cells}))
    notebook = read_notebook(file, "a.ipynb")
    assert notebook.place(3) == ("a.ipynb:cell 2", 2)
    old = [{"cell_type": "code", "input": "a = 1"}]
    file.write_text(json.dumps({"worksheets": [{"cells": old}]}))
    assert "a = 1\n" in read_notebook(file, "a.ipynb").text
    for content in ("{}", "[]", "not JSON", '{"cells": 3}', '{"cells": [{"cell_type": "code", "source": 3}]}'):
        file.write_text(content)
        with pytest.raises(Unreadable, match="is not a notebook"):
            read_notebook(file, "a.ipynb")

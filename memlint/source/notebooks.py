"""Notebooks as Python programs: their code cells in order, without what is not Python, and where each line stands."""

import ast
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memlint.source.files import Unreadable, read_bytes

SUFFIX = ".ipynb"
_MAGIC = re.compile(r"(\s*)(?:[%!?].*|[\w.]+\?+\s*)\Z", re.DOTALL)
_ASSIGNED = re.compile(r"(\s*)([\w.,\s]+?)=\s*[%!](?!=).*\Z", re.DOTALL)
_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_AROUND_CODE = ("capture", "memlint", "prun", "time", "timeit")
"""Magics whose cell is Python all the same; every other one speaks of another language or of a file."""
_TIMED = re.compile(r"(\s*)%(?:time|timeit|prun|memit)\s+(?:-\w+\s+)*([^\s-].*)")
"""A magic that runs the code behind it."""
_FUTURE = re.compile(r"\s*from\s+__future__\s+import\b")
_BEFORE = (
    "import builtins as _builtins, sys as _sys; _sys.path.insert(0, {folder!r}); "
    "_builtins.display = lambda *_objects, **_options: None; _builtins.get_ipython = lambda: None\n"
)
"""The folder of the notebook can be imported from, and the functions that IPython adds do nothing."""


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook as a program."""

    text: str
    places: tuple[tuple[str, int] | None, ...]
    """For each line the name of its cell, and its line there; None for those that were added."""

    def place(self, line: int) -> tuple[str, int] | None:
        """Give the cell and line of a line of the program, from 1; those that were added belong to what follows."""
        return next((place for place in self.places[max(0, line - 1) :] if place is not None), None)


def read_notebook(path: Path, name: str) -> Notebook:
    """Read a notebook of format 3 or 4; its cells are called `name:cell 1` and so on. Raises Unreadable."""
    try:
        content = json.loads(read_bytes(str(path)))
        cells = [(f"{name}:cell {number}", source) for number, source in _code_cells(content)]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise Unreadable(str(path), 1, "is not a notebook") from error
    return program_of(cells, path.resolve().parent)


def program_of(cells: Iterable[tuple[str, str]], folder: Path) -> Notebook:
    """Make the program of cells, by name and text, that run in `folder`."""
    lines = [_BEFORE.format(folder=str(folder))]
    places: list[tuple[str, int] | None] = [None]
    for name, source in cells:
        for line, text in enumerate(_python(source), 1):
            is_future = _FUTURE.match(text) is not None
            if is_future:  # Python takes it at the beginning alone
                lines.insert(0, text)
                places.insert(0, (name, line))
            lines.append("\n" if is_future else text)
            places.append((name, line))
    return Notebook("".join(lines), tuple(places))


def _code_cells(content: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each cell of Python code."""
    cells = content["cells"] if "cells" in content else [c for sheet in content["worksheets"] for c in sheet["cells"]]
    for number, cell in enumerate(cells, 1):
        source = cell.get("source", cell.get("input", ""))
        if cell["cell_type"] == "code":
            yield number, source if isinstance(source, str) else "".join(source)


def _python(source: str) -> Iterator[str]:
    """Yield the lines of a cell; those that are not Python do nothing."""
    lines = [f"{line}\n" for line in source.replace("\r\n", "\n").split("\n")]
    magic = next((match for line in lines if line.strip() for match in [_CELL_MAGIC.match(line)]), None)
    if magic is not None and magic[1] not in _AROUND_CODE:
        yield from ("\n" for _line in lines)
        return
    if magic is None and _parses(source):
        yield from lines
        return
    continues = False
    for line in lines:
        if continues:
            yield "\n"
        elif (match := _TIMED.match(line)) is not None:
            yield f"{match[1]}{match[2]}\n"
        elif (match := _MAGIC.match(line)) is not None:
            yield f"{match[1]}pass\n"
        elif (match := _ASSIGNED.match(line)) is not None:
            yield f"{match[1]}{match[2].strip()} = None\n"
        else:
            yield line
            continue
        continues = line.rstrip().endswith("\\")


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True

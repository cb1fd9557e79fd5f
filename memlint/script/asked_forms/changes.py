"""Change the forms of made data, and find where in them a value of the program's stands."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import numpy as np

from memlint.script.failures import Failure, UnknownError
from memlint.script.forms import ITEM, Kind, Path, Value, forms, usual

MOST_CHOICES = 64
"""Words that a column is to be one of, of which no more are taken."""
NUM_TRIED = 4
"""Values of a container that are looked for."""

_WHOLE = re.compile(
    r"(?:.*_)?(?:id|ids|idx|index|labels?|class|target|age|year|month|day|hour|count|num|number|rating|timestamp)"
    r"|\w+(?:id|Id|ID)"
)
"""Names of columns of whole numbers."""


def value_at(place: str, path: Path) -> Value:
    """Return the value at `path` of the rows in a file; lines without columns get some."""
    form, rows = forms.change(place), forms.made.get(place, ())
    if rows and isinstance(rows[0], dict) and "" in rows[0] and form.separator is None:
        form.separator, form.width = "", 1 if path == ("",) else len(rows[0]) - 1
    path = ("0",) if path == ("",) else path
    value = form.row
    for name in path:
        if value is not form.row:
            value.kind = "list" if name == ITEM else "row"
        value = value.fields.setdefault(name, Value())
    return value


def add(value: Value, name: str) -> Value:
    """Give a row a value by this name."""
    return value.fields.setdefault(name, usual(name))


def number(at: Failure, place: str, path: Path, kind: Kind = "") -> bool:
    """Make a column one of numbers; where the same line asks for several, all that nothing is known of."""
    form = forms.change(place)
    if form.shape == "row":
        name = PurePath(place).name
        at.error.add_note(
            f"The number {path[-1]!r} is read from {name}: put the file there, as a size may depend on it."
        )
        return False
    value = value_at(place, path)
    names = [name for name in path if name != ITEM]
    if names and isinstance(at.node, ast.Call) and ast.unparse(at.node.func).endswith("Tensor"):  # a scalar has no use
        value.kind, value.fields = "list", usual(names[-1]).fields or {ITEM: Value(kind or "whole")}
        return True
    value.kind = kind or ("whole" if names and _WHOLE.fullmatch(names[-1]) else "real")
    form.asked_at[at.key] = form.asked_at.get(at.key, 0) + 1
    if form.asked_at[at.key] > 1 and form.separator is not None:
        form.rest = value.kind
    return True


def tainted(value: Any) -> Iterator[tuple[str, Path]]:
    """Yield where the texts stand that are in a value: a text, or a container of several."""
    if isinstance(value, str):
        if (found := forms.find(value)) is not None:
            yield found
    elif isinstance(value, Mapping):
        for each in list(value.values()):
            yield from itertools.islice(tainted(each), 1)
    elif isinstance(value, list | tuple):
        for each in value[:NUM_TRIED]:
            yield from tainted(each)
    else:
        yield from tainted(_columns_of(value))


def _columns_of(value: Any) -> dict[Any, list[Any]]:
    """Return the first values of each column of an array or a table; nothing of other objects."""
    if is_frame(value):
        return {name: list(value[name].iloc[:NUM_TRIED]) for name in value.columns}
    if type(value).__name__ in ("Series", "Index") or type(value).__name__.endswith("StringArray"):
        return {0: list(value[:NUM_TRIED])}
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUT" and value.ndim:
        columns = value.reshape(len(value), -1)[:NUM_TRIED].T
        return {number: [str(each) for each in column] for number, column in enumerate(columns)}
    return {}


def is_frame(value: Any) -> bool:
    """Return True for a table of pandas."""
    return type(value).__name__ == "DataFrame"


def has_names(rows: Sequence[Any]) -> bool:
    """Return True for rows whose values have names, other than lines of a text."""
    return bool(rows) and isinstance(rows[0], dict) and "" not in rows[0]


def whole_file(value: Any) -> str:
    """Return the JSON file that a list of rows is the whole of; empty if there is none."""
    for place, rows in reversed(forms.made.items()):
        if isinstance(value, list) and len(value) == len(rows) and value[:1] == json.loads(json.dumps(list(rows[:1]))):
            return place
    return ""


def column_with(numbers: Sequence[object]) -> tuple[str, Path] | None:
    """Return where the column of a table stands that has one of these numbers; None if there is none."""
    for place, rows in reversed(forms.made.items()):
        for row in rows if numbers and has_names(rows) else ():
            for name, value in row.items():
                if not isinstance(value, str) and value in numbers:
                    return place, (name,)
    return None


def known(at: Failure, node: ast.expr) -> Any:
    """Return the value of an expression; None if it is not known."""
    with suppress(UnknownError):
        return at.value(node)
    return None

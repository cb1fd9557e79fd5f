"""Learn which keys and columns a program looks for."""

from __future__ import annotations

import ast
import itertools
import json
import re
import string
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from memlint.script.asked_forms.changes import MOST_CHOICES, NUM_TRIED, add, has_names, tainted, value_at, whole_file
from memlint.script.failures import Failure, UnknownError
from memlint.script.forms import ITEM, Path, Value, forms

_LETTERS = frozenset(string.ascii_letters)

_COCO = frozenset(("images", "annotations", "categories"))


def of_key(at: Failure) -> bool:
    """A row, a table or a dictionary made of a file's values has no such key."""
    key = at.error.args[0] if at.error.args else None
    for each in (at.node, *at.enclosing(ast.Subscript)):
        with suppress(UnknownError):
            if isinstance(each, ast.Subscript) and _of_dictionary(at.value(each.value), key):
                return True
    if isinstance(key, str) and (names := _names_in(key)):
        return columns(at, names)
    if isinstance(key, int) and isinstance(at.node, ast.Subscript):
        base = at.value(at.node.value)
        for place, rows in forms.made.items():
            if rows and base == rows[0]:
                forms.change(place).shape = "rows"
                return True
    return False


def of_columns(at: Failure) -> bool:
    """The reader of a table was told columns that it does not have: `index_col`, `usecols`, a format's columns."""
    one = re.match(
        r"Index (.+) invalid$|Missing column provided to 'parse_dates': '(.+)'$|Column '(.+)' doesn't exist\.$", at.text
    )
    if of_set := re.match(r"Columns (\[.*?\]) not in the dataset", at.text):
        return columns(at, re.findall(r"'([^']+)'", of_set[1]))
    is_used = "expected but not found" in at.text
    names = [one[one.lastindex or 0]] if one is not None else _names_in(at.text) if is_used else []
    return bool(names) and columns(at, names)


def _names_in(key: str) -> list[str]:
    """Return the names of columns that a message of pandas is about, or the key itself."""
    if "not in index" in key or "not found in axis" in key or " are in the " in key or "expected but not found" in key:
        return re.findall(
            r"'([^']+)'", key.partition("]")[0] if key.startswith("[") else re.sub(r"dtype='\w+'", "", key)
        )
    return [key]


def _of_dictionary(base: Any, key: Any) -> bool:
    """A dictionary has no such key: it is one of made values, or a made value is none of its own keys."""
    if not isinstance(base, Mapping):
        return False
    keys = [each for each in base if isinstance(each, str)]
    if isinstance(key, str) and len(key) == 1 and forms.spell("".join(each for each in keys if each in _LETTERS)):
        return True
    found = forms.find(key)
    made_key = next(tainted(keys), None)
    is_elsewhere = found is not None and made_key is not None and found[0] != made_key[0]
    if found is not None and keys and (made_key is None or is_elsewhere or value_at(*made_key).kind == "choice"):
        value = value_at(*found)
        value.kind, value.choices = "choice", tuple(keys[:MOST_CHOICES])
        return True
    if found is None and isinstance(key, str):
        alike = [at for at, rows in forms.made.items() if has_names(rows) and set(keys) == set(map(str, rows[0]))]
        for place in alike if keys else ():
            add(forms.change(place).row, key)
        if keys and alike:
            return True
        text = next(tainted(dict(base)), None)
        place, path = (text[0], text[1][:-1]) if text is not None else _of_equal_row(base)
        for each in (forms.alike(*text) if text is not None else [place]) if path else ():
            add(value_at(each, path), key)
        if path:
            return True
        return _give(keys, key)
    return False


def _of_equal_row(base: Mapping[Any, Any]) -> tuple[str, Path]:
    """Return where a row stands, within made rows, that equals this one: it may have no text by which it is found.

    Both parts are empty if there is none.
    """
    for place, rows in reversed(forms.made.items()):
        for row in rows[:NUM_TRIED]:
            for path, inner in _rows_within(row, ()):
                if json.loads(json.dumps(inner, default=str)) == base:
                    return place, path
    return "", ()


def _rows_within(value: Any, path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the rows in a made value, with their places."""
    if isinstance(value, Mapping):
        yield path, value
        for name, each in value.items():
            yield from _rows_within(each, (*path, str(name)))
    elif isinstance(value, list):
        for each in value[:NUM_TRIED]:
            yield from _rows_within(each, (*path, ITEM))


def _give(keys: list[str], key: str) -> bool:
    """Let the line of words that a dictionary is made of have one more word."""
    for place, rows in forms.made.items():
        for number, row in enumerate(rows[:NUM_TRIED]):
            words = set(row.values()) if isinstance(row, dict) and "" in row else set()
            if keys and words.issuperset(keys[:NUM_TRIED]):
                forms.change(place).given.setdefault(number, []).append(key)
                return True
    return False


def columns(at: Failure, names: list[str]) -> bool:
    """Let the table that a line uses have columns of these names: the one with its other columns, or the last one."""
    tables = [place for place, rows in forms.made.items() if has_names(rows)]
    if not tables:
        return False
    used = [
        set(map(str, value.columns))
        for value in at.values(at.node)
        if hasattr(value, "columns") and hasattr(value, "iloc")
    ]
    fitting = [place for place in tables if any(used_by & set(forms.made[place][0]) for used_by in used)]
    for name in names:
        add(forms.change((fitting or tables)[-1]).row, name)
    return True


_READS = re.compile(r"\bloads?$")


def of_subscript(at: Failure, node: ast.Subscript) -> bool:
    """A key is looked for in a text or a list: a row with it stands there."""
    key = at.value(node.slice)
    if not isinstance(key, str):
        return False
    is_read = isinstance(node.value, ast.Call) and _READS.search(ast.unparse(node.value.func)) is not None
    base = None if is_read else at.value(node.value)
    if place := next(reversed(forms.made), "") if is_read else whole_file(base):
        form = forms.change(place)
        form.shape = "boxes" if key in _COCO and at.names(_COCO) else "row"
        add(form.row, key)
        return True
    if not isinstance(base, str):
        return False
    if (found := forms.find(base)) is not None:
        value = value_at(*found)
        value.kind = "row"
        add(value, key)
        return True
    inner: list[Any] = []
    if isinstance(node.value, ast.Subscript):
        inner = [at.value(node.value.value)]
    elif isinstance(node.value, ast.Name):
        inner = list(at.looped(node.value.id))
    place, path = next(itertools.chain.from_iterable(map(tainted, inner)), ("", ()))
    for each in forms.alike(place, path) if place else ():
        value = value_at(each, path)
        value.kind = "list"
        item = value.fields.setdefault(ITEM, Value())
        item.kind = "row"
        add(item, key)
    return bool(place)

"""Learn which texts should be numbers, dates or one of a few words."""

from __future__ import annotations

import ast
import io
import itertools
import os
import re
from collections.abc import Mapping
from contextlib import suppress

from memlint.script.asked_forms.changes import MOST_CHOICES, add, has_names, known, number, tainted, value_at
from memlint.script.asked_forms.sizes import NO_ITEM
from memlint.script.failures import Failure, UnknownError
from memlint.script.forms import ITEM, Kind, Value, forms


def of_message(at: Failure) -> bool:
    """A text that is no number or date stands in the message."""
    for pattern, kind in _MESSAGES:
        if (match := pattern.search(at.text)) is not None:
            text = re.sub(r"^np\.str_\((.*)\)$", r"\1", match[1])
            with suppress(ValueError, SyntaxError):
                text = str(ast.literal_eval(text))
            found = forms.find(text) or forms.find(text.strip())
            if found is None:
                return False
            if kind != "date":
                return number(at, *found, kind)  # type: ignore[arg-type]
            value = value_at(*found)
            value.kind = "date"
            if match.lastindex == 2:
                value.layout = match[2]
            return True
    return False


_MESSAGES = (
    (re.compile(r"could not convert string to (?:float|complex): (.+)", re.DOTALL), ""),
    (re.compile(r"could not convert string (.+?) to \w+", re.DOTALL), "real"),
    (re.compile(r"invalid literal for int\(\) with base \d+: (.+)", re.DOTALL), "whole"),
    (re.compile(r"Unable to parse string (\".+\") at position", re.DOTALL), ""),
    (re.compile(r"time data [\"']?(.+?)[\"']? does(?: not|n't) match format [\"'](.+?)[\"']", re.DOTALL), "date"),
    (
        re.compile(
            r"(?:nable to parse|string format|month string|isoformat string)[^:]*: (.+?)(?:, at .*)?$", re.DOTALL
        ),
        "date",
    ),
)
"""Messages with a text in them, and the kind that was asked for in its place; empty: a number as its name says."""


def of_number(at: Failure) -> bool:
    """A number that a file has by name stands where several should: each name has a list of them."""
    if _NO_NUMBERS.search(at.text) is None:
        return False
    by_name = (each for each in reversed(forms.asked.values()) if each.shape == "map" and each.row == Value())
    form = next(by_name, None)
    if form is not None:
        form.row.kind, form.row.fields[ITEM] = "list", Value("whole")
    return form is not None


_NO_NUMBERS = re.compile(r"'int' object is not (?:iterable|subscriptable)|object of type 'int' has no len\(\)")


def of_merged(at: Failure) -> bool:
    """Two tables are joined by a column that has numbers in one of them."""
    names = re.findall(r"trying to merge on .* columns for key '(.+?)'", at.text)
    found = [
        (place, name) for name in names for place, rows in forms.made.items() if has_names(rows) and name in rows[0]
    ]
    for place, name in found:
        number(at, place, (name,), "whole")
    return bool(found)


def of_numbers(at: Failure) -> bool:
    """A text or tokens stand where a number should: all texts of the expression, or what it names, become numbers."""
    if NO_ITEM.search(at.text) is not None:
        return False
    if _of_file_of_numbers(at):
        return True
    nodes = (at.node, *itertools.islice(at.enclosing(ast.stmt), 1))
    for node in nodes:
        values = list(at.values(node))
        inner = [each for each in values if isinstance(each, str) or type(each).__name__ == "Series"]
        values = inner or values  # `row["age"] < 18` is not about `row`
        found = list(dict.fromkeys(itertools.chain.from_iterable(map(tainted, values))))
        for each in found[1:]:
            number(at, *each, _kind_asked(at))
        if found:
            return number(at, *found[0], _kind_asked(at))
    subscripts = (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Subscript))
    keys = [each.slice.value for each in subscripts if isinstance(each.slice, ast.Constant)]
    rows = ((place, made[0]) for place, made in forms.made.items() if made and isinstance(made[0], Mapping))
    tokens = next(((place, (str(key),)) for place, row in rows for key in keys if isinstance(row.get(key), list)), None)
    return tokens is not None and "'list'" in at.text and number(at, *tokens, _kind_asked(at))


def _of_file_of_numbers(at: Failure) -> bool:
    """A file that was opened as a text is handed to a reader of numbers: `np.loadtxt(file, delimiter=",")`."""
    for call in (each for each in (at.node, *at.enclosing(ast.Call)) if isinstance(each, ast.Call)):
        for value in at.values(call):
            place = os.path.realpath(value.name) if isinstance(value, io.TextIOWrapper) else ""
            if place and forms.key(place) in forms.made:
                form = forms.change(place)
                between = [known(at, each.value) for each in call.keywords if each.arg in ("delimiter", "sep")]
                form.kind, form.separator = "numbers", next(iter(between), None)
                return True
    return False


def _kind_asked(at: Failure) -> Kind:
    return "" if "float" in at.text else "whole"


def of_list(at: Failure) -> bool:
    """A text is none of a list."""
    if re.search(r"is not in (?:list|tuple)|x not in|not in list", at.text) is None:
        return False
    for call in (at.node, *at.enclosing(ast.Call)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
            with suppress(UnknownError):
                choices = at.value(call.func.value)
                if _of_names(at, choices, call.args[0]):
                    return True
                text = re.match(r"'(.+)' is not in", at.text)
                found = forms.find(text[1]) if text else next(tainted(at.value(call.args[0])), None)
                if found is not None and isinstance(choices, list | tuple):
                    value = value_at(*found)
                    value.kind, value.choices = "choice", tuple(choices[:MOST_CHOICES])
                    return True
    return False


def _of_names(at: Failure, names: object, asked: ast.expr) -> bool:
    """A name is none of a list of all columns of a table: the table has a column of this name."""
    try:
        name = at.value(asked)
    except UnknownError:
        return False  # such as the text of an element of XML
    if not isinstance(name, str) or not isinstance(names, list) or forms.find(name) is not None:
        return False
    for place, rows in reversed(forms.made.items()):
        if has_names(rows) and set(names).issubset(rows[0]):
            add(forms.change(place).row, name)
            return True
    return False

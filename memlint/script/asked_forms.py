"""Learn from an exception what a program asks of the data that memlint made up.

The exception says what was asked; the expression that raised it, taken from the position of the instruction, and the
values of its names say of which part of which file.
"""

from __future__ import annotations

import ast
import inspect
import io
import itertools
import json
import math
import os
import pickle
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import numpy as np

from memlint.script.failures import Failure, UnknownError
from memlint.script.fake_records import Record
from memlint.script.file_kinds import kind_by_name
from memlint.script.forms import DATA_SET, ITEM, SETTINGS, Form, Kind, Path, Value, forms, usual
from memlint.workloads.missing_checkpoints import is_of_weights

_NUM_TRIED = 4
"""Values of a container that are looked for."""
_MOST_CHOICES = 64
_LETTERS = frozenset(string.ascii_letters)
_OF_MAPPINGS = frozenset(("keys", "items", "values", "get", "update"))
_OF_TENSORS = frozenset(
    ("to", "cuda", "float", "long", "int", "shape", "size", "dtype", "dim", "astype", "item", "device", "mean", "sum")
)
_WHOLE = re.compile(
    r"(?:.*_)?(?:id|ids|idx|index|labels?|class|target|age|year|month|day|hour|count|num|number|rating|timestamp)"
    r"|\w+(?:id|Id|ID)"
)
"""Names of columns of whole numbers."""
_COCO = frozenset(("images", "annotations", "categories"))


def learned(error: BaseException) -> bool:
    """Change the forms as the program that failed asks; returns True if that changed anything."""
    at = Failure.of(error)
    if at is None:
        return False
    before = pickle.dumps(forms.asked)
    for kind, learn in _LEARN:
        if isinstance(error, kind):
            with suppress(Exception):  # of objects of the script's, which may be anything
                if learn(at):
                    break
    return pickle.dumps(forms.asked) != before


# --- changes


def _value_at(place: str, path: Path) -> Value:
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


def _add(value: Value, name: str) -> Value:
    """Give a row a value by this name."""
    return value.fields.setdefault(name, usual(name))


def _number(at: Failure, place: str, path: Path, kind: Kind = "") -> bool:
    """Make a column one of numbers; where the same line asks for several, all that nothing is known of."""
    form = forms.change(place)
    if form.shape == "row":
        name = PurePath(place).name
        at.error.add_note(
            f"The number {path[-1]!r} is read from {name}: put the file there, as a size may depend on it."
        )
        return False
    value = _value_at(place, path)
    names = [name for name in path if name != ITEM]
    if names and isinstance(at.node, ast.Call) and ast.unparse(at.node.func).endswith("Tensor"):  # a scalar has no use
        value.kind, value.fields = "list", usual(names[-1]).fields or {ITEM: Value(kind or "whole")}
        return True
    value.kind = kind or ("whole" if names and _WHOLE.fullmatch(names[-1]) else "real")
    form.asked_at[at.key] = form.asked_at.get(at.key, 0) + 1
    if form.asked_at[at.key] > 1 and form.separator is not None:
        form.rest = value.kind
    return True


def _tainted(value: Any) -> Iterator[tuple[str, Path]]:
    """Yield where the texts stand that are in a value: a text, or a container of several."""
    if isinstance(value, str):
        if (found := forms.find(value)) is not None:
            yield found
    elif isinstance(value, Mapping):
        for each in list(value.values()):
            yield from itertools.islice(_tainted(each), 1)
    elif isinstance(value, list | tuple):
        for each in value[:_NUM_TRIED]:
            yield from _tainted(each)
    else:
        yield from _tainted(_columns_of(value))


def _columns_of(value: Any) -> dict[Any, list[Any]]:
    """Return the first values of each column of an array or a table; nothing of other objects."""
    if _is_frame(value):
        return {name: list(value[name].iloc[:_NUM_TRIED]) for name in value.columns}
    if type(value).__name__ in ("Series", "Index") or type(value).__name__.endswith("StringArray"):
        return {0: list(value[:_NUM_TRIED])}
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUT" and value.ndim:
        columns = value.reshape(len(value), -1)[:_NUM_TRIED].T
        return {number: [str(each) for each in column] for number, column in enumerate(columns)}
    return {}


def _is_frame(value: Any) -> bool:
    """Return True for a table of pandas."""
    return type(value).__name__ == "DataFrame"


# --- what an exception says


def _of_message(at: Failure) -> bool:
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
                return _number(at, *found, kind)  # type: ignore[arg-type]
            value = _value_at(*found)
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


def _of_unpacking(at: Failure) -> bool:
    match = re.search(r"to unpack \(expected (?:at least )?(\d+)", at.text)
    if match is None:
        return False
    wanted = int(match[1])
    for each in at.enclosing(ast.Assign, ast.For, ast.AnnAssign):
        source = each.iter if isinstance(each, ast.For) else each.value
        if isinstance(each, ast.Assign) and (place := _record_of(at, source)):
            names = [ast.unparse(target) for target in getattr(each.targets[0], "elts", ())]
            names = [f"{name}{i}" if name in names[:i] else name for i, name in enumerate(names)]
            forms.change(place).row.fields = {name: Value() for name in names}
            return bool(names)
        with suppress(UnknownError):
            value = self_or_first(at.value(source)) if isinstance(each, ast.For) else at.value(source)
            return _widen(at, value, wanted, source, exactly="at least" not in at.text)
    return _of_unpacked_rows(wanted)


def _of_unpacked_rows(wanted: int) -> bool:
    """A loop over the rows of a table takes each apart: it is one without a head, with as many columns of words."""
    place = next(reversed(forms.made), "")
    if not place or not _has_names(forms.made[place]) or kind_by_name(place) != "table":
        return False
    form = forms.change(place)
    form.kind, form.rest, form.width = "text", "word", wanted
    form.separator = "\t" if PurePath(place).suffix == ".tsv" else ","
    return True


def _record_of(at: Failure, source: ast.AST) -> str:
    """Return the file of values by name that an expression gives as a whole; empty if there is none."""
    with suppress(UnknownError):
        value = at.value(source)
        return str(value.whole_of) if isinstance(value, Record) else ""
    if not isinstance(source, ast.Call) or _LOADS.search(ast.unparse(source.func)) is None:
        return ""
    return next((place for place, rows in reversed(forms.made.items()) if not rows), "")


_LOADS = re.compile("load|read|pickle", re.IGNORECASE)


def self_or_first(value: Any) -> Any:
    """Return the first item of a container."""
    return next(iter(value), None) if isinstance(value, list | tuple) else value


def _of_index(at: Failure) -> bool:
    if "out of bounds for axis 1" in at.text or "out-of-bounds" in at.text:
        wanted = re.search(r"index (\d+) is out", at.text)
        form = forms.change(next(reversed(forms.made)))
        form.width = int(wanted[1]) + 1 if wanted else form.width + 1 or 2
        return True
    for each in (at.node, *at.enclosing(ast.Subscript)):
        if isinstance(each, ast.Subscript):
            base, key = at.value(each.value), at.value(each.slice)
            if isinstance(key, int):
                return _widen(at, base, key + 1 if key >= 0 else -key, each.value)
    return False


def _widen(at: Failure, pieces: Any, wanted: int, source: ast.AST, *, exactly: bool = False) -> bool:
    """Let the lines of which these are pieces have as many as wanted."""
    pieces = [pieces] if isinstance(pieces, str) else pieces
    if not isinstance(pieces, list | tuple) or not all(isinstance(each, str) for each in pieces):
        return False
    found = next((text for each in pieces if (text := forms.find(each) or forms.find(each.strip()))), None)
    if found is None:
        return False
    place, path = found
    form = forms.change(place)
    rows = forms.made[place]
    if "" not in rows[0]:  # columns by their names
        if path[:1] and path[0] in rows[0] and len(pieces) > 1:
            form.width = wanted
            return True
        return _join(at, place, path, wanted, source)
    if form.separator is not None and path != ("",) and len(pieces) == 1 and form.width > 1:
        return _join(at, place, path, wanted, source)
    offset = 0 if path == ("",) else int(path[0])
    if form.separator is None:
        form.separator = _separator(at, source)
        offset = offset if len(pieces) > 1 else 0
    form.width = offset + wanted if exactly else max(form.width, offset + wanted)
    return True


def _join(at: Failure, place: str, path: Path, wanted: int, source: ast.AST) -> bool:
    """Let a text of a column consist of several, with a separator of their own."""
    value = _value_at(place, path)
    value.kind, value.layout = "joined", _separator(at, source) or " "
    for number in range(wanted):
        value.fields.setdefault(str(number), Value("word"))
    return True


def _separator(at: Failure, source: ast.AST) -> str:
    """Return the separator at which a text is split, at its line or else the nearest one before it; empty for space."""

    def splits(tree: ast.AST) -> list[ast.Call]:
        calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
        return [
            each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr in ("split", "rsplit")
        ]

    calls = splits(source) or sorted(
        (each for each in splits(at.tree) if each.lineno <= at.line), key=lambda each: -each.lineno
    )
    for call in calls[:1]:
        value = _default_of(at.tree, call) if call.args else None
        with suppress(UnknownError):
            value = at.value(call.args[0]) if call.args and value is None else value
        return value if isinstance(value, str) else ""
    return ""


def _default_of(tree: ast.AST, call: ast.Call) -> object:
    """Return the default of the parameter that a call's first argument is, in the function around it; None if none."""
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef) and each.lineno <= call.lineno <= (each.end_lineno or each.lineno):
            names = [argument.arg for argument in each.args.args]
            defaults = dict(zip(names[::-1], each.args.defaults[::-1], strict=False))
            default = defaults.get(call.args[0].id) if isinstance(call.args[0], ast.Name) else None
            if isinstance(default, ast.Constant):
                return default.value
    return None


def _of_key(at: Failure) -> bool:
    key = at.error.args[0] if at.error.args else None
    for each in (at.node, *at.enclosing(ast.Subscript)):
        with suppress(UnknownError):
            if isinstance(each, ast.Subscript) and _of_dictionary(at.value(each.value), key):
                return True
    if isinstance(key, str) and (names := _names_in(key)):
        return _columns(at, names)
    if isinstance(key, int) and isinstance(at.node, ast.Subscript):
        base = at.value(at.node.value)
        for place, rows in forms.made.items():
            if rows and base == rows[0]:
                forms.change(place).shape = "rows"
                return True
    return False


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
    made_key = next(_tainted(keys), None)
    is_elsewhere = found is not None and made_key is not None and found[0] != made_key[0]
    if found is not None and keys and (made_key is None or is_elsewhere or _value_at(*made_key).kind == "choice"):
        value = _value_at(*found)
        value.kind, value.choices = "choice", tuple(keys[:_MOST_CHOICES])
        return True
    if found is None and isinstance(key, str):
        alike = [at for at, rows in forms.made.items() if _has_names(rows) and set(keys) == set(map(str, rows[0]))]
        for place in alike if keys else ():
            _add(forms.change(place).row, key)
        if keys and alike:
            return True
        text = next(_tainted(dict(base)), None)
        place, path = (text[0], text[1][:-1]) if text is not None else _of_equal_row(base)
        for each in (forms.alike(*text) if text is not None else [place]) if path else ():
            _add(_value_at(each, path), key)
        if path:
            return True
        return _give(keys, key)
    return False


def _of_equal_row(base: Mapping[Any, Any]) -> tuple[str, Path]:
    """Return where a row stands, within made rows, that equals this one: it may have no text by which it is found.

    Both parts are empty if there is none.
    """
    for place, rows in reversed(forms.made.items()):
        for row in rows[:_NUM_TRIED]:
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
        for each in value[:_NUM_TRIED]:
            yield from _rows_within(each, (*path, ITEM))


def _has_names(rows: Sequence[Any]) -> bool:
    """Return True for rows whose values have names, other than lines of a text."""
    return bool(rows) and isinstance(rows[0], dict) and "" not in rows[0]


def _give(keys: list[str], key: str) -> bool:
    """Let the line of words that a dictionary is made of have one more word."""
    for place, rows in forms.made.items():
        for number, row in enumerate(rows[:_NUM_TRIED]):
            words = set(row.values()) if isinstance(row, dict) and "" in row else set()
            if keys and words.issuperset(keys[:_NUM_TRIED]):
                forms.change(place).given.setdefault(number, []).append(key)
                return True
    return False


def _columns(at: Failure, names: list[str]) -> bool:
    """Let the table that a line uses have columns of these names: the one with its other columns, or the last one."""
    tables = [place for place, rows in forms.made.items() if _has_names(rows)]
    if not tables:
        return False
    used = [
        set(map(str, value.columns))
        for value in at.values(at.node)
        if hasattr(value, "columns") and hasattr(value, "iloc")
    ]
    fitting = [place for place in tables if any(used_by & set(forms.made[place][0]) for used_by in used)]
    for name in names:
        _add(forms.change((fitting or tables)[-1]).row, name)
    return True


def _of_file_names(at: Failure) -> bool:
    """A row is taken for the name of a file: all rows of its file are such names."""
    if _NO_NAME_OF_FILE.search(at.text) is None:
        return False
    rows = [each for each in at.values(at.node) if isinstance(each, Mapping)]
    places = [place for place, made in forms.made.items() if any(row in made for row in rows)]
    words = re.findall("[a-z]{3,}", ast.unparse(at.node).lower())  # files that were made alike go by their names
    for place in sorted(places, key=lambda each: not any(word in PurePath(each).stem.lower() for word in words))[:1]:
        forms.change(place).shape = "files"
    return bool(places)


_NO_NAME_OF_FILE = re.compile(
    "'dict' object has no attribute '(?:read|seek|r?split|[lr]?strip|endswith)'|(?:PathLike|integer|bytes).*not '?dict"
)


def _of_paths(at: Failure) -> bool:
    """A number of a table is taken for the name of a file: its column has such names."""
    if _NO_PATH.search(at.text) is None:
        return False
    numbers = [each for each in at.values(at.node) if isinstance(each, int | float | np.number)]
    for place, rows in reversed(forms.made.items()):
        for row in rows if numbers and _has_names(rows) else ():
            for name, value in row.items():
                if not isinstance(value, str) and value in numbers:
                    _value_at(place, (name,)).kind = "file"
                    return True
    return False


_NO_PATH = re.compile(r"(?:PathLike.*not|unsupported operand.* '\w*Path' and) '?(?:numpy\.)?(?:float|int)")


def _of_listed_images(at: Failure) -> bool:
    """The lines of a text are no images: they become paths of some."""
    place = next((each for each in reversed(forms.made) if PurePath(each).suffix == ".txt"), "")
    if not place or _NO_IMAGES.search(at.text) is None or forms.of(place).separator is not None:
        return False
    _value_at(place, ("",)).kind = "path"
    return True


_IMAGE = r"\b(?:images?|imgs?)\b"
_NO_IMAGES = re.compile(
    rf"\b(?:no|not|invalid|unsupported|error)\b.*{_IMAGE}|{_IMAGE}.*\b(?:not|error)\b", re.IGNORECASE | re.DOTALL
)
"""Messages on what should be images and is none."""


def _of_merged(at: Failure) -> bool:
    """Two tables are joined by a column that has numbers in one of them."""
    names = re.findall(r"trying to merge on .* columns for key '(.+?)'", at.text)
    found = [
        (place, name) for name in names for place, rows in forms.made.items() if _has_names(rows) and name in rows[0]
    ]
    for place, name in found:
        _number(at, place, (name,), "whole")
    return bool(found)


def _of_attribute(at: Failure) -> bool:
    obj, name = getattr(at.error, "obj", None), getattr(at.error, "name", "") or ""
    if isinstance(obj, list | dict) and name in _OF_MAPPINGS and (place := _whole_file(obj)):
        node = at.node if isinstance(at.node, ast.Attribute) else next(at.enclosing(ast.Attribute), None)
        call = next((each for each in ast.walk(at.tree) if isinstance(each, ast.Call) and each.func is node), None)
        is_named = call is not None and bool(call.args) and isinstance(call.args[0], ast.Constant)
        forms.change(place).shape = "row" if is_named else "map"
        if is_named and call is not None:
            _add(forms.change(place).row, str(at.value(call.args[0])))
        return True
    if _is_frame(obj):
        return _columns(at, [name])
    if type(obj).__name__ == "Value" and name in _OF_CLASSES:
        return _classes(at)
    place_and_path = next(_tainted(obj), None)
    if place_and_path is None:
        return False
    if isinstance(obj, str) and name in _OF_MAPPINGS:
        _value_at(*place_and_path).kind = "row"
        return True
    return name in _OF_TENSORS and _number(at, *place_and_path)


def _classes(at: Failure) -> bool:
    """The type of a column of a data set has no names of classes: `rows.features["label"].names`."""
    taken = next((each for each in ast.walk(at.node) if isinstance(each, ast.Subscript)), None)
    place = next((each for each in reversed(forms.made) if each.startswith(DATA_SET)), "")
    if taken is None or not place or not isinstance(name := at.value(taken.slice), str):
        return False
    forms.change(place).row.fields[name] = Value("class")
    return True


_OF_CLASSES = frozenset(("names", "num_classes", "int2str", "str2int"))


def _whole_file(value: Any) -> str:
    """Return the JSON file that a list of rows is the whole of; empty if there is none."""
    for place, rows in reversed(forms.made.items()):
        if isinstance(value, list) and len(value) == len(rows) and value[:1] == json.loads(json.dumps(list(rows[:1]))):
            return place
    return ""


def _of_type(at: Failure) -> bool:
    if "must be a mapping, not" in at.text:
        return _of_arguments(at)
    if re.search(r"missing \d+ required|unexpected keyword argument", at.text) and _of_missing_arguments(at):
        return True
    for each in (at.node, *at.enclosing(ast.Subscript)):
        if isinstance(each, ast.Subscript):
            with suppress(UnknownError):
                if _of_subscript(at, each):
                    return True
    return _of_numbers(at)


_READS = re.compile(r"\bloads?$")


def _of_subscript(at: Failure, node: ast.Subscript) -> bool:
    key = at.value(node.slice)
    if not isinstance(key, str):
        return False
    is_read = isinstance(node.value, ast.Call) and _READS.search(ast.unparse(node.value.func)) is not None
    base = None if is_read else at.value(node.value)
    if place := next(reversed(forms.made), "") if is_read else _whole_file(base):
        form = forms.change(place)
        form.shape = "boxes" if key in _COCO and at.names(_COCO) else "row"
        _add(form.row, key)
        return True
    if not isinstance(base, str):
        return False
    if (found := forms.find(base)) is not None:
        value = _value_at(*found)
        value.kind = "row"
        _add(value, key)
        return True
    inner: list[Any] = []
    if isinstance(node.value, ast.Subscript):
        inner = [at.value(node.value.value)]
    elif isinstance(node.value, ast.Name):
        inner = list(at.looped(node.value.id))
    place, path = next(itertools.chain.from_iterable(map(_tainted, inner)), ("", ()))
    for each in forms.alike(place, path) if place else ():
        value = _value_at(each, path)
        value.kind = "list"
        item = value.fields.setdefault(ITEM, Value())
        item.kind = "row"
        _add(item, key)
    return bool(place)


def _of_arguments(at: Failure) -> bool:
    """A file is taken as the named arguments of a function: it has those that the function needs."""
    call = at.node if isinstance(at.node, ast.Call) else next(at.enclosing(ast.Call))
    for value in (each.value for each in call.keywords if each.arg is None):
        with suppress(UnknownError):
            place = _whole_file(at.value(value)) or next(reversed(forms.made), "")
            if not place:
                return False
            form = forms.change(place)
            form.shape = "row"
            with suppress(UnknownError, ValueError, TypeError):
                for name, parameter in inspect.signature(at.value(call.func)).parameters.items():
                    if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
                        _add(form.row, name)
            return True
    if len(forms.made):
        forms.change(next(reversed(forms.made))).shape = "row"
        return True
    return False


def _of_missing_arguments(at: Failure) -> bool:
    call = at.node if isinstance(at.node, ast.Call) else next(at.enclosing(ast.Call), None)
    if call is None or all(each.arg is not None for each in call.keywords):
        return False
    place = next((each for each in reversed(forms.made) if forms.of(each).shape == "row"), "")
    names = re.findall(r"'(\w+)'", at.text)
    if not place:
        return False
    form = forms.change(place)
    if "unexpected" in at.text:
        form.refused.update(names)
    else:
        for name in names:
            _add(form.row, name)
    return True


def _of_validation(at: Failure) -> bool:
    """The messages of pydantic name each value and what it should be."""
    errors = getattr(at.error, "errors", None)
    place = next((each for each in reversed(forms.made) if forms.of(each).shape == "row"), "")
    if errors is None or not place:
        return False
    form, is_changed = forms.change(place), False
    for each in errors():
        path, kind = tuple(map(str, each["loc"])), str(each["type"])
        if kind == "missing":
            _add(form.row, path[0])
        elif kind == "extra_forbidden":
            form.refused.add(path[0])
        elif kind.startswith(("int", "float", "bool")):
            if not _number(at, place, path):
                return False
        elif kind.startswith(("list", "dict")):
            form.row.fields[path[0]].kind = "list" if kind.startswith("list") else "row"
        else:
            continue
        is_changed = True
    return is_changed


def _of_numbers(at: Failure) -> bool:
    """A text or tokens stand where a number should: all texts of the expression, or what it names, become numbers."""
    if _NO_ITEM.search(at.text) is not None:
        return False
    if _of_file_of_numbers(at):
        return True
    nodes = (at.node, *itertools.islice(at.enclosing(ast.stmt), 1))
    for node in nodes:
        values = list(at.values(node))
        inner = [each for each in values if isinstance(each, str) or type(each).__name__ == "Series"]
        values = inner or values  # `row["age"] < 18` is not about `row`
        found = list(dict.fromkeys(itertools.chain.from_iterable(map(_tainted, values))))
        for each in found[1:]:
            _number(at, *each, _kind_asked(at))
        if found:
            return _number(at, *found[0], _kind_asked(at))
    subscripts = (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Subscript))
    keys = [each.slice.value for each in subscripts if isinstance(each.slice, ast.Constant)]
    rows = ((place, made[0]) for place, made in forms.made.items() if made and isinstance(made[0], Mapping))
    tokens = next(((place, (str(key),)) for place, row in rows for key in keys if isinstance(row.get(key), list)), None)
    return tokens is not None and "'list'" in at.text and _number(at, *tokens, _kind_asked(at))


def _of_file_of_numbers(at: Failure) -> bool:
    """A file that was opened as a text is handed to a reader of numbers: `np.loadtxt(file, delimiter=",")`."""
    for call in (each for each in (at.node, *at.enclosing(ast.Call)) if isinstance(each, ast.Call)):
        for value in at.values(call):
            place = os.path.realpath(value.name) if isinstance(value, io.TextIOWrapper) else ""
            if place and forms.key(place) in forms.made:
                form = forms.change(place)
                between = [_known(at, each.value) for each in call.keywords if each.arg in ("delimiter", "sep")]
                form.kind, form.separator = "numbers", next(iter(between), None)
                return True
    return False


def _kind_asked(at: Failure) -> Kind:
    return "" if "float" in at.text else "whole"


def _of_list(at: Failure) -> bool:
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
                found = forms.find(text[1]) if text else next(_tainted(at.value(call.args[0])), None)
                if found is not None and isinstance(choices, list | tuple):
                    value = _value_at(*found)
                    value.kind, value.choices = "choice", tuple(choices[:_MOST_CHOICES])
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
        if _has_names(rows) and set(names).issubset(rows[0]):
            _add(forms.change(place).row, name)
            return True
    return False


def _of_json(at: Failure) -> bool:
    if type(at.error).__name__ != "JSONDecodeError" or not forms.made:
        return False
    place = next(reversed(forms.made))
    call = next((each for each in (at.node, *at.enclosing(ast.Call)) if isinstance(each, ast.Call)), None)
    forms.change(place).kind = "lines" if call is not None and ast.unparse(call.func).endswith("loads") else "json"
    return True


def _of_file(at: Failure) -> bool:
    """A file is not there whose name says nothing: what opens it says what it holds."""
    path = getattr(at.error, "filename", None)
    if not isinstance(path, str) or PurePath(path).suffix in SETTINGS or kind_by_name(path) or is_of_weights(path):
        return False
    place = os.path.realpath(path)
    suffix = PurePath(place).suffix
    forms.change(str(PurePath(place).with_name(f"*{suffix}")) if suffix else place).kind = "text"
    return True


def _of_pickle(at: Failure) -> bool:
    """A file without an end is read as a pickle."""
    place = next(reversed(forms.made), "")
    if type(at.error).__name__ != "UnpicklingError" or not place:
        return False
    forms.change(place).kind = "record"
    return True


def _of_length(at: Failure) -> bool:
    """The program itself refuses a text as too long."""
    if not isinstance(at.node, ast.Raise | ast.Assert) or _TOO_LONG.search(at.text) is None:
        return False
    forms.shorten()
    return True


_TOO_LONG = re.compile(r"too (?:long|large)|longer than|exceed|max\w* len", re.IGNORECASE)


def _of_rows(at: Failure) -> bool:
    """A data set, or a part of it, has no item: its rows are fewer than one takes, such as the steps of a series.

    One of Hugging Face says which row is wanted.
    """
    if (wanted := _NO_ROW.search(at.text)) is not None:
        return forms.lengthen(int(wanted[1]) + 1)
    return _NO_ITEM.search(at.text) is not None and (forms.lengthen() or forms.vary())


_NO_ROW = re.compile(r"Index (\d+) out of range for dataset of size \d+")
_NO_ITEM = re.compile(
    r"__len__\(\) should return >= 0|num_samples should be a positive integer|smaller than the number of samples"
)


def _of_small_images(at: Failure) -> bool:
    """A crop is larger than the images."""
    return _TOO_SMALL.search(at.text) is not None and forms.enlarge()


_TOO_SMALL = re.compile(
    r"^(?:low >= high|high <= 0|empty range (?:for|in) rand)|'from' to be less than 'to'"
    r"|[Cc]rop\b.*\b(?:larger|bigger|greater|exceed)"
)


def _of_sides(at: Failure) -> bool:
    """A program takes images of a size, into which it cannot bring the values of those that were made up."""
    match = _NO_SUCH_SHAPE.search(at.text)
    sizes = [int(each) for each in re.findall(r"-?\d+", match[1] or match[2])] if match is not None else []
    pairs = (pair for pair in itertools.pairwise(sizes) if min(pair) >= _SHORTEST_SIDE)
    height, width = next(pairs, (0, 0))
    if height:
        return forms.resize(width, height)
    place = next((each for each in reversed(forms.made) if forms.of(each).separator is not None), "")
    if place and sizes:  # a line has the values of one array: of a matrix, say
        forms.change(place).width = math.prod(size for size in sizes if size > 0)
    return bool(place and sizes)


_NO_SUCH_SHAPE = re.compile(
    r"shape '\[([-\d, ]+)\]' is invalid for input|cannot reshape array of size \d+ into shape \((.*)\)"
)
_SHORTEST_SIDE = 16


def _of_rate(at: Failure) -> bool:
    """A program takes audio of one sampling rate, with which it compares that of what was made up."""
    for each in (*ast.walk(at.node), *(test for found in at.enclosing(ast.If) for test in ast.walk(found.test))):
        if isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.Eq | ast.NotEq):
            rates = [value for side in (each.left, *each.comparators) if isinstance(value := _known(at, side), int)]
            wanted = [rate for rate in rates if rate != forms.sampling_rate]
            if len(rates) == 2 and len(wanted) == 1 and _LOWEST_RATE <= wanted[0] <= _HIGHEST_RATE:
                return forms.sample(wanted[0])
    return False


_LOWEST_RATE, _HIGHEST_RATE = 8_000, 192_000
"""Times that audio is sampled in a second, of telephones and of studios."""


def _known(at: Failure, node: ast.expr) -> Any:
    with suppress(UnknownError):
        return at.value(node)
    return None


def _of_odd_sides(at: Failure) -> bool:
    """A model has halved the sides of images, and what it has doubled again differs by one."""
    match = _DIFFER.search(at.text)
    return match is not None and abs(int(match[1]) - int(match[2])) == 1 and forms.square()


_DIFFER = re.compile(r"tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension [23]")


def _of_reshaped(at: Failure) -> bool:
    """Arrays of a record have other sides: `rows["X"][i].reshape(length, features)`."""
    match = re.search(r"cannot reshape array of size \d+ into shape \((\d+(?:,\d+)+)\)", at.text)
    place = next((each for each, rows in reversed(forms.made.items()) if not rows), "")
    if match is None or not place:
        return False
    form, sides = forms.change(place), tuple(map(int, match[1].split(",")))
    if form.sides == sides:  # an array is that of many rows
        form.shape = "rows"
    form.sides = sides
    return True


def _of_record(at: Failure) -> bool:
    """Values of a record are those of many rows."""
    place = next((each for each, rows in reversed(forms.made.items()) if not rows), "")
    if not place or _WITHOUT_ROWS.search(at.text) is None:
        return False
    forms.asked.setdefault(str(PurePath(place).with_name(f"*{PurePath(place).suffix}")), Form()).shape = "rows"
    return True


_WITHOUT_ROWS = re.compile(
    "array is 0-dimensional|tensor has no dimensions|of unsized object|over a 0-d|Size mismatch between tensors"
    "|'list' object has no attribute 'astype'"
)
"""Messages on arrays that are those of one row, where many are wanted."""
_LEARN: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Callable[[Failure], bool]], ...] = (
    (FileNotFoundError, _of_file),
    (Exception, _of_pickle),
    (Exception, _of_length),
    ((IndexError, TypeError, AssertionError, AttributeError), _of_record),
    (ValueError, _of_reshaped),
    ((ValueError, IndexError), _of_rows),
    ((AttributeError, TypeError), _of_file_names),
    (TypeError, _of_paths),
    (Exception, _of_listed_images),
    (Exception, _of_small_images),
    (RuntimeError, _of_odd_sides),
    ((RuntimeError, ValueError), _of_sides),
    (Exception, _of_rate),
    (KeyError, _of_key),
    (IndexError, _of_index),
    (ValueError, _of_merged),
    (AttributeError, _of_attribute),
    (ValueError, _of_json),
    (ValueError, _of_validation),
    (Exception, _of_message),
    (ValueError, _of_unpacking),
    (ValueError, _of_list),
    (TypeError, _of_type),
    (ValueError, _of_numbers),
)

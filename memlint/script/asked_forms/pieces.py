"""Learn into how many pieces a program takes the lines and texts of a file."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from memlint.script.asked_forms.changes import has_names, value_at
from memlint.script.failures import Failure, UnknownError
from memlint.script.fake_records import Record
from memlint.script.file_kinds import kind_by_name
from memlint.script.forms import Path, Value, forms


def of_unpacking(at: Failure) -> bool:
    """A text is taken apart into more pieces, or fewer, than it has."""
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
            value = _first_of(at.value(source)) if isinstance(each, ast.For) else at.value(source)
            return _widen(at, value, wanted, source, exactly="at least" not in at.text)
    return _of_unpacked_rows(wanted)


def of_counted_pieces(at: Failure) -> bool:
    """A line is checked to have so many pieces: `assert len(line.split(",")) == 2`."""
    for each in at.enclosing(ast.Assert):
        match each.test:
            case ast.Compare(ast.Call(ast.Name("len"), [source]), [ast.Eq()], [ast.Constant(int(wanted))]):
                return _widen(at, at.value(source), wanted, source, exactly=True)
    return False


def _of_unpacked_rows(wanted: int) -> bool:
    """A loop over the rows of a table takes each apart: it is one without a head, with as many columns of words."""
    place = next(reversed(forms.made), "")
    if not place or not has_names(forms.made[place]) or kind_by_name(place) != "table":
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


def _first_of(value: Any) -> Any:
    """Return the first item of a container."""
    return next(iter(value), None) if isinstance(value, list | tuple) else value


def of_index(at: Failure) -> bool:
    """A text has no piece of this number."""
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
    value = value_at(place, path)
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

"""Learn what a value is from an attribute that it has not."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import numpy as np

from memlint.script.asked_forms.changes import add, column_with, is_frame, number, tainted, value_at, whole_file
from memlint.script.asked_forms.keys import columns
from memlint.script.forms import DATA_SET, ITEM, Value, forms

if TYPE_CHECKING:
    from memlint.script.failures import Failure

_OF_MAPPINGS = frozenset(("keys", "items", "values", "get", "update"))

_OF_TENSORS = frozenset(
    ("to", "cuda", "float", "long", "int", "shape", "size", "dtype", "dim", "astype", "item", "device", "mean", "sum")
)


def of_attribute(at: Failure) -> bool:
    """A list, a table or a text has no such attribute: it is of another kind."""
    obj, name = getattr(at.error, "obj", None), getattr(at.error, "name", "") or ""
    if isinstance(obj, list | dict) and name in _OF_MAPPINGS and (place := whole_file(obj)):
        node = at.node if isinstance(at.node, ast.Attribute) else next(at.enclosing(ast.Attribute), None)
        call = next((each for each in ast.walk(at.tree) if isinstance(each, ast.Call) and each.func is node), None)
        is_named = call is not None and bool(call.args) and isinstance(call.args[0], ast.Constant)
        forms.change(place).shape = "row" if is_named else "map"
        if is_named and call is not None:
            add(forms.change(place).row, str(at.value(call.args[0])))
        return True
    if is_frame(obj):
        return columns(at, [name])
    if type(obj).__name__ == "Value" and name in _OF_CLASSES:
        return _classes(at)
    if isinstance(obj, int | float | np.number) and hasattr(str, name) and (column := column_with([obj])) is not None:
        value_at(*column).kind = "word"
        return True
    place_and_path = next(tainted(obj), None)
    if place_and_path is None:
        return name in _OF_MAPPINGS and isinstance(obj, str) and _listed(at)
    if isinstance(obj, str) and name in _OF_MAPPINGS:
        value_at(*place_and_path).kind = "row"
        return True
    return name in _OF_TENSORS and number(at, *place_and_path)


def _listed(at: Failure) -> bool:
    """The loop around goes through the letters of a text, which is a list of rows."""
    names = [each.id for each in ast.walk(at.node) if isinstance(each, ast.Name)]
    for whole in (each for name in names for each in at.looped(name) if isinstance(each, str)):
        if (place_and_path := next(tainted(whole), None)) is not None:
            value_at(place_and_path[0], (*place_and_path[1], ITEM)).kind = "row"
            return True
    return False


def _classes(at: Failure) -> bool:
    """The type of a column of a data set has no names of classes: `rows.features["label"].names`."""
    taken = next((each for each in ast.walk(at.node) if isinstance(each, ast.Subscript)), None)
    place = next((each for each in reversed(forms.made) if each.startswith(DATA_SET)), "")
    if taken is None or not place or not isinstance(name := at.value(taken.slice), str):
        return False
    forms.change(place).row.fields[name] = Value("class")
    return True


_OF_CLASSES = frozenset(("names", "num_classes", "int2str", "str2int"))

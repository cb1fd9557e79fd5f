"""Learn which names a file has whose values are the arguments of a function or the fields of a class."""

from __future__ import annotations

import ast
import inspect
import re
from contextlib import suppress

from memlint.script.asked_forms.changes import add, number, whole_file
from memlint.script.asked_forms.keys import of_subscript
from memlint.script.asked_forms.kinds import of_numbers
from memlint.script.failures import Failure, UnknownError
from memlint.script.forms import forms


def of_type(at: Failure) -> bool:
    """A text stands where a row, or an argument, should, or an argument is missing."""
    if "must be a mapping, not" in at.text:
        return _of_arguments(at)
    if re.search(r"missing \d+ required|unexpected keyword argument", at.text) and _of_missing_arguments(at):
        return True
    for each in (at.node, *at.enclosing(ast.Subscript)):
        if isinstance(each, ast.Subscript):
            with suppress(UnknownError):
                if of_subscript(at, each):
                    return True
    return of_numbers(at)


def _of_arguments(at: Failure) -> bool:
    """A file is taken as the named arguments of a function: it has those that the function needs."""
    call = at.node if isinstance(at.node, ast.Call) else next(at.enclosing(ast.Call))
    for value in (each.value for each in call.keywords if each.arg is None):
        with suppress(UnknownError):
            place = whole_file(at.value(value)) or next(reversed(forms.made), "")
            if not place:
                return False
            form = forms.change(place)
            form.shape = "row"
            with suppress(UnknownError, ValueError, TypeError):
                for name, parameter in inspect.signature(at.value(call.func)).parameters.items():
                    if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
                        add(form.row, name)
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
            add(form.row, name)
    return True


def of_validation(at: Failure) -> bool:
    """The messages of pydantic name each value and what it should be."""
    errors = getattr(at.error, "errors", None)
    place = next((each for each in reversed(forms.made) if forms.of(each).shape == "row"), "")
    if errors is None or not place:
        return False
    form, is_changed = forms.change(place), False
    for each in errors():
        path, kind = tuple(map(str, each["loc"])), str(each["type"])
        if kind == "missing":
            add(form.row, path[0])
        elif kind == "extra_forbidden":
            form.refused.add(path[0])
        elif kind.startswith(("int", "float", "bool")):
            if not number(at, place, path):
                return False
        elif kind.startswith(("list", "dict")):
            form.row.fields[path[0]].kind = "list" if kind.startswith("list") else "row"
        else:
            continue
        is_changed = True
    return is_changed

"""Learn what a file holds, and which values are names of files."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from memlint.script.asked_forms.changes import column_with, value_at
from memlint.script.file_kinds import kind_by_name
from memlint.script.forms import SETTINGS, Form, forms
from memlint.workloads.missing_checkpoints import is_of_weights

if TYPE_CHECKING:
    from memlint.script.failures import Failure


def of_file_names(at: Failure) -> bool:
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


def of_paths(at: Failure) -> bool:
    """A number of a table is taken for the name of a file: its column has such names."""
    if _NO_PATH.search(at.text) is None:
        return False
    numbers = [each for each in at.values(at.node) if isinstance(each, int | float | np.number)]
    found = column_with(numbers)
    if found is not None:
        value_at(*found).kind = "file"
    return found is not None


_NO_PATH = re.compile(r"(?:PathLike.*not|unsupported operand.* '\w*Path' and) '?(?:numpy\.)?(?:float|int)")


def of_listed_images(at: Failure) -> bool:
    """The lines of a text are no images: they become paths of some."""
    place = next((each for each in reversed(forms.made) if PurePath(each).suffix == ".txt"), "")
    if not place or _NO_IMAGES.search(at.text) is None or forms.of(place).separator is not None:
        return False
    value_at(place, ("",)).kind = "path"
    return True


_IMAGE = r"\b(?:images?|imgs?)\b"

_NO_IMAGES = re.compile(
    rf"\b(?:no|not|invalid|unsupported|error)\b.*{_IMAGE}|{_IMAGE}.*\b(?:not|error)\b", re.IGNORECASE | re.DOTALL
)
"""Messages on what should be images and is none."""


def of_numbered_files(at: Failure) -> bool:
    """The name of a file in a folder is read as a number."""
    return _NO_NUMBER.search(at.text) is not None and forms.number_files()


_NO_NUMBER = re.compile(r"invalid literal for int\(\) with base 10: '(?:train|val|test)_\d{6}\b")


def of_json(at: Failure) -> bool:
    """A file, or each of its lines, is read as JSON."""
    if type(at.error).__name__ != "JSONDecodeError" or not forms.made:
        return False
    place = next(reversed(forms.made))
    call = next((each for each in (at.node, *at.enclosing(ast.Call)) if isinstance(each, ast.Call)), None)
    forms.change(place).kind = "lines" if call is not None and ast.unparse(call.func).endswith("loads") else "json"
    return True


def of_file(at: Failure) -> bool:
    """A file is not there whose name says nothing: what opens it says what it holds."""
    path = getattr(at.error, "filename", None)
    if not isinstance(path, str) or PurePath(path).suffix in SETTINGS or kind_by_name(path) or is_of_weights(path):
        return False
    place = os.path.realpath(path)
    suffix = PurePath(place).suffix
    like = str(PurePath(place).with_name(f"*{suffix}")) if suffix else place
    # One of this ending may hold something else: a vocabulary beside a text.
    forms.asked.setdefault(place if like in forms.asked else like, Form()).kind = "text"
    return True


def of_folder(at: Failure) -> bool:
    """The names in a folder are those of files, as they are in the folders beside it."""
    place = forms.above.get(str(getattr(at.error, "filename", None)))
    if place is None:
        return False
    for each in dict.fromkeys(forms.above.values()):
        if PurePath(each).parent == PurePath(place).parent:
            forms.change(each).kind = "files"
    return True


def of_pickle(at: Failure) -> bool:
    """A file without an end is read as a pickle."""
    place = next(reversed(forms.made), "")
    if type(at.error).__name__ != "UnpicklingError" or not place:
        return False
    forms.change(place).kind = "record"
    return True

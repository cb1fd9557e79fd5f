"""Learn how many rows, and which sides, lengths and rates made data should have."""

from __future__ import annotations

import ast
import itertools
import math
import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from memlint.script.asked_forms.changes import known
from memlint.script.forms import Form, forms

if TYPE_CHECKING:
    from memlint.script.failures import Failure


def of_length(at: Failure) -> bool:
    """The program itself refuses a text as too long."""
    if not isinstance(at.node, ast.Raise | ast.Assert) or _TOO_LONG.search(at.text) is None:
        return False
    forms.shorten()
    return True


_TOO_LONG = re.compile(r"too (?:long|large)|longer than|exceed|max\w* len", re.IGNORECASE)


def of_rows(at: Failure) -> bool:
    """A data set, or a part of it, has no item: its rows are fewer than one takes, such as the steps of a series.

    One of Hugging Face says which row is wanted.
    """
    if (wanted := _NO_ROW.search(at.text)) is not None:
        return forms.lengthen(int(wanted[1]) + 1)
    return NO_ITEM.search(at.text) is not None and (forms.lengthen() or forms.vary())


_NO_ROW = re.compile(r"Index (\d+) out of range for dataset of size \d+")

NO_ITEM = re.compile(
    r"__len__\(\) should return >= 0|num_samples should be a positive integer|smaller than the number of samples"
)


def of_small_images(at: Failure) -> bool:
    """A crop is larger than the images."""
    return _TOO_SMALL.search(at.text) is not None and forms.enlarge()


_TOO_SMALL = re.compile(
    r"^(?:low >= high|high <= 0|empty range (?:for|in) rand)|'from' to be less than 'to'"
    r"|[Cc]rop\b.*\b(?:larger|bigger|greater|exceed)"
)


def of_sides(at: Failure) -> bool:
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


def of_rate(at: Failure) -> bool:
    """A program takes audio of one sampling rate, with which it compares that of what was made up."""
    for each in (*ast.walk(at.node), *(test for found in at.enclosing(ast.If) for test in ast.walk(found.test))):
        if isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.Eq | ast.NotEq):
            rates = [value for side in (each.left, *each.comparators) if isinstance(value := known(at, side), int)]
            wanted = [rate for rate in rates if rate != forms.sampling_rate]
            if len(rates) == 2 and len(wanted) == 1 and _LOWEST_RATE <= wanted[0] <= _HIGHEST_RATE:
                return forms.sample(wanted[0])
    return False


_LOWEST_RATE, _HIGHEST_RATE = 8_000, 192_000
"""Times that audio is sampled in a second, of telephones and of studios."""


def of_odd_sides(at: Failure) -> bool:
    """A model has halved the sides of images, and what it has doubled again differs by one."""
    match = _DIFFER.search(at.text)
    return match is not None and abs(int(match[1]) - int(match[2])) == 1 and forms.square()


_DIFFER = re.compile(r"tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension [23]")


def of_reshaped(at: Failure) -> bool:
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


def of_record(at: Failure) -> bool:
    """Values of a record are those of many rows."""
    place = next((each for each, rows in reversed(forms.made.items()) if not rows), "")
    if not place or _WITHOUT_ROWS.search(at.text) is None:
        return False
    forms.asked.setdefault(str(PurePath(place).with_name(f"*{PurePath(place).suffix}")), Form()).shape = "rows"
    return True


_WITHOUT_ROWS = re.compile(
    "array is 0-dimensional|on 0d arrays|tensor has no dimensions|of unsized object|over a 0-d"
    "|Size mismatch between tensors|'list' object has no attribute 'astype'"
)
"""Messages on arrays that are those of one row, where many are wanted."""

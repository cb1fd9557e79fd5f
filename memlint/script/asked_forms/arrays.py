"""Learn the sides of arrays that memlint made up: how many there are, and those that a layer takes.

Each made side is a number of its own. So an error that names two sizes says which side of which file has to be which.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from memlint.script.asked_forms.changes import known
from memlint.script.fake_records import Record
from memlint.script.forms import forms

if TYPE_CHECKING:
    from memlint.script.failures import Failure

_RANKS = re.compile(
    r"too many indices for array: array is \d+-dimensional, but (?P<indexed>\d+) were indexed"
    r"|not enough values to unpack \(expected (?P<unpacked>\d+), got \d+\)"
    r"|axis (?P<axis>\d+) is out of bounds for array of dimension"
    r"|Dimension out of range \(expected to be in range of \[-\d+, \d+\], but got (?P<dim>\d+)\)"
    r"|(?P<of_tensor>too many indices for tensor of dimension)|(?P<of_shape>tuple index out of range)"
)
_FEWER = re.compile(r"(?:must (?:have|be)|[Ee]xpected|should (?:have|be)) (?:an? )?(\d)[ -]?(?:[Dd]\b|dim)")
_PAIRS = tuple(
    map(
        re.compile,
        (
            r"shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)",
            r"to have (\d+) channels, but got (\d+) channels",
            r"normalized_shape=\[(\d+)\].*\[(?:\d+, )*(\d+)\]",
            r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)",
            r"Expected size (\d+) but got size (\d+)",
            r"input_size\. Expected (\d+), got (\d+)",
            r"size (\d+) is different from (\d+)",
        ),
    )
)
"""Messages with two sizes that should be one."""


def of_rank(at: Failure) -> bool:
    """A program takes more dimensions of an array than were made."""
    match = _RANKS.search(at.text)
    rank = 0 if match is None else _rank_asked(at, match)
    arrays = (each for each in at.values(at.node) if isinstance(each, np.ndarray | torch.Tensor))
    for array in (each for each in arrays if each.ndim < rank):
        if place := _place(at, array.shape):
            return forms.give_sides(place, rank - array.ndim + len(forms.arrays[place]))  # a batch has one more
    last = next(reversed(forms.arrays), "")
    is_read_here = any(isinstance(each, ast.Call) for each in ast.walk(at.node))  # `np.load(path)[:, 0]`
    return bool(last) and rank > 0 and is_read_here and forms.give_sides(last, rank)


def of_fewer_dimensions(at: Failure) -> bool:
    """A program takes fewer dimensions than there are, and one of them is the side of an array that was made."""
    if (match := _FEWER.search(at.text)) is None:
        return False
    tests = [each.test for each in at.enclosing(ast.If)][:1]
    arrays = (each for node in (at.node, *tests) for each in at.values(node) if isinstance(each, torch.Tensor))
    for array in (each for each in arrays if each.ndim > int(match[1])):
        place = _place(at, array.shape)
        sides = forms.arrays.get(place, ())
        if len(sides) > 1:
            dropped = next(side for side in sides if side in array.shape)
            forms.change(place).sides = tuple(side for side in sides if side != dropped)
            return True
    return False


def of_real_array(at: Failure) -> bool:
    """An array of tokens goes where real numbers do."""
    if re.search(r"same dtype|scalar type|not implemented for", at.text) is None:
        return False
    values = (each for each in at.values(at.node) if isinstance(each, np.ndarray | torch.Tensor))
    tokens = (each for each in values if str(each.dtype).endswith("uint16"))
    place = next(filter(None, (_place(at, each.shape) for each in tokens)), "")
    return bool(place) and forms.give_sides(place, 1)


def _rank_asked(at: Failure, match: re.Match[str]) -> int:
    groups = {name: int(text) for name, text in match.groupdict().items() if text and text.isdigit()}
    if groups:
        return next(iter(groups.values())) + (not groups.keys().isdisjoint(("axis", "dim")))
    node = at.node if isinstance(at.node, ast.Subscript) else next(iter(at.enclosing(ast.Subscript)), None)
    if not isinstance(node, ast.Subscript):
        return 0
    if match["of_shape"]:
        index = known(at, node.slice)
        is_shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        return index + 1 if is_shape and isinstance(index, int) else 0
    return len(node.slice.elts) if isinstance(node.slice, ast.Tuple) else 0


def _place(at: Failure, shape: Sequence[int]) -> str:
    """Return the file of an array with a side of `shape`: of several the one whose path names in the expression have.

    Empty if there is none.
    """
    places = [place for place, sides in reversed(forms.arrays.items()) if not set(sides).isdisjoint(shape)]
    words = {word for each in ast.walk(at.node) for word in _words(_name(each))}
    alike = (place for place in places if words.intersection(_words(place)))
    return next(alike, next(iter(places), ""))


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _words(text: str) -> Iterator[str]:
    return (word.rstrip("s") for word in re.split(r"[\W_\d]+", text.lower()) if len(word) > 1)


def of_pair(at: Failure) -> bool:
    """Two sizes should be one, and one of them is the side of an array that was made."""
    found = next(filter(None, (pattern.search(at.text) for pattern in _PAIRS)), None)
    if found is None:
        return False
    first, second = map(int, found.groups())
    return forms.take_side(first, second) or forms.take_side(second, first)


def of_whole_array(at: Failure) -> bool:
    """The content of a file is used as an array, and not as values by names."""
    if "Record" not in at.text and "object is not callable" not in at.text:
        return False
    nodes = [at.node.func.value] if isinstance(at.node, ast.Call) and isinstance(at.node.func, ast.Attribute) else []
    values = [*(known(at, node) for node in nodes), *at.values(at.node)]
    listed = (item for each in values for item in (each[:1] if isinstance(each, list | tuple) else [each]))
    whole = next((each.whole_of for each in listed if isinstance(each, Record) and each.whole_of), "")
    if whole:
        forms.change(whole).shape = "array"
    return bool(whole) and forms.give_sides(whole, 2)

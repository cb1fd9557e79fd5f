"""The size of the images that a data set gives, by the transforms and the settings that it holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

_SIZE = re.compile(r"(.*_)?(ps|(patch|crop|img|image|im|input|train|resize|fine)_?(size|shape|sz|dim|res))")
"""Names under which a data set keeps the size to which it cuts or resizes."""
_INNER = re.compile(
    r"(.*_)?(data_?sets?|data|opts?|options|config|cfg|args|transforms?|tf|augment(ation)?s?|preprocess)"
)
"""Names of what has such sizes: the data set in a wrapper such as a Subset, settings, transforms."""
_RESIZES = re.compile(r"resize|crop", re.IGNORECASE)
_SIDES, _MOST_DEPTH, _MOST, _NUM_SIDES = range(8, 4097), 6, 32, 2


def image_sides(data: object) -> list[tuple[int, int]]:
    """Return the heights and widths of the images of a data set, the largest first, if it says them.

    Of the steps of one transform the last decides: it is the one before the model.
    """
    return sorted(set(_sides(data, _MOST_DEPTH)), reverse=True)


def _sides(value: object, depth: int) -> list[tuple[int, int]]:
    """Return the sizes of transforms, or without any those of settings; of a list those of its last entry with some."""
    is_list = isinstance(value, list | tuple)
    held = dict(enumerate(value)) if isinstance(value, list | tuple) else value
    entries = held if isinstance(held, Mapping) else getattr(held, "__dict__", {})
    own, inner = list[tuple[int, int]](), list[list[tuple[int, int]]]()
    for name, each in islice(entries.items(), _MOST):
        is_size = _SIZE.fullmatch(str(name)) or (name == "size" and _RESIZES.search(type(value).__name__))
        if is_size and (sides := _pair(each)) is not None:
            own.append(sides)
        elif depth and (is_list or _INNER.fullmatch(str(name))):
            inner += filter(None, [_sides(each, depth - 1)])
    return [sides for each in (inner[-1:] if is_list else inner) for sides in each] or own


def _pair(value: object) -> tuple[int, int] | None:
    """Return height and width; a whole number is the side of a square, and channels may stand before two sides."""
    sides = (value, value) if type(value) is int else value
    if not isinstance(sides, list | tuple) or not _NUM_SIDES <= len(sides) <= _NUM_SIDES + 1:
        return None
    height, width = sides[-_NUM_SIDES:]
    is_size = type(height) is int and type(width) is int and height in _SIDES and width in _SIDES
    return (height, width) if is_size else None

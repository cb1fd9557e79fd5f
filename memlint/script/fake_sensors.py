"""Series of the sensors of a network, such as a road's, and the matrix of what lies between two of them.

Their number is that of the script's variables: nothing is made up without one.
"""

import re
from collections.abc import Collection
from typing import Any

import numpy as np

from memlint.script.fake_images import number_of_script

_NODES = re.compile(r"(num|n|number)?_?(of)?_?(node|sensor|vertex|vertice|station)s?(_?(num|count))?", re.IGNORECASE)
_FEATURES = re.compile(r"(input|in|num|n)_?(dim|dims|features?|channels?)", re.IGNORECASE)
_OF_MATRIX = frozenset(("adj", "adjacency", "laplacian", "dist", "distance", "distances"))
_OF_SERIES = frozenset(("data", "series", "flow", "traffic", "speed"))
_NUM_STEPS, _MOST_VALUES = 4096, 2**26
"""Steps in time, and values in all of them, of which there are fewer steps for many sensors."""


def array_of_sensors(words: Collection[str]) -> np.ndarray[Any, Any] | None:
    """Return zeros for a name of these words: `[sensors, sensors]` or `[steps, sensors, features]`; else None."""
    is_matrix = not _OF_MATRIX.isdisjoint(words)
    number = 0 if not is_matrix and _OF_SERIES.isdisjoint(words) else number_of_script(_NODES)[0]
    if not number:
        return None
    if is_matrix:
        return np.zeros((number, number), np.float32)
    features = number_of_script(_FEATURES)[0] or 1
    return np.zeros((min(_NUM_STEPS, _MOST_VALUES // (number * features)), number, features), np.float32)

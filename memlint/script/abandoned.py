"""Frees what a script's own forward keeps for a backward that will not come."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Iterable, Mapping
from types import FrameType

import torch

_MOST_DEPTH, _MOST_ENTRIES = 3, 64


def abandon_graphs(frames: Iterable[FrameType]) -> None:
    """Set variables to None that hold outputs of a forward, in frames that will not run on."""
    for frame in frames:
        variables = frame.f_locals
        for name in [name for name, value in variables.items() if _holds_output(value)]:
            variables[name] = None
            if sys.version_info < (3, 13):  # a dictionary beside the variables
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def _holds_output(value: object, depth: int = 0) -> bool:
    if isinstance(value, torch.Tensor):
        return value.grad_fn is not None
    entries: Iterable[object] = ()
    if depth < _MOST_DEPTH:
        entries = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(_holds_output(each, depth + 1) for each in itertools.islice(entries, _MOST_ENTRIES))

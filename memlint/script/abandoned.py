"""Frees what a script's own forward keeps for a backward that will not come."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Iterable, MutableMapping
from types import FrameType
from typing import Any

import torch

_MOST_DEPTH, _MOST_ENTRIES = 3, 64


def abandon_graphs(frames: Iterable[FrameType], namespaces: Iterable[MutableMapping[str, Any]]) -> None:
    """Set variables to None that hold outputs of a forward, in frames that will not run on and in namespaces."""
    for namespace in namespaces:
        _forget_outputs(namespace)
    for frame in frames:
        _forget_outputs(frame.f_locals)
        if sys.version_info < (3, 13):  # the variables themselves are beside that dictionary
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def _forget_outputs(variables: MutableMapping[str, Any]) -> None:
    for name in [name for name, value in variables.items() if _holds_output(value)]:
        variables[name] = None


def _holds_output(value: object, depth: int = 0) -> bool:
    if isinstance(value, torch.Tensor):
        return value.grad_fn is not None
    entries: Iterable[object] = ()
    if depth < _MOST_DEPTH:
        entries = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(_holds_output(each, depth + 1) for each in itertools.islice(entries, _MOST_ENTRIES))

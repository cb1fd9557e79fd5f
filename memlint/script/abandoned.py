"""Frees what a failed iteration of a script keeps: its batch, and its forward for a backward that will not come."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Iterable, MutableMapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.private import is_view

if TYPE_CHECKING:
    from memlint.accelerator.ledger import Ledger

_MOST_DEPTH, _MOST_ENTRIES = 3, 64


def abandon_iteration(
    frames: Iterable[FrameType], namespaces: Iterable[MutableMapping[str, Any]], ledger: Ledger, first: int | None
) -> None:
    """Set variables to None that hold tensors of an iteration, in frames that will not run on and in namespaces.

    These are the outputs of a forward, and what was made on the GPU since a loader gave its first batch: storages from
    the number `first` on; None without a batch. Of such that were freed nothing counts any more.
    """
    for namespace in namespaces:
        _forget(namespace, first)
    for frame in frames:
        _forget(frame.f_locals, first)
        if sys.version_info < (3, 13):  # the variables themselves are beside that dictionary
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    freed = {~event for event in ledger.events if event < 0}
    for number in range(len(ledger.births) if first is None else first, len(ledger.births)):
        if number in freed:
            ledger.births[number] = ledger.births[number]._replace(nbytes=min(ledger.births[number].nbytes, 1))
            ledger.doubts.pop(number, None)


def _forget(variables: MutableMapping[str, Any], first: int | None) -> None:
    for name in [name for name, value in variables.items() if _is_of_iteration(value, first)]:
        variables[name] = None


def _is_of_iteration(value: object, first: int | None, depth: int = 0) -> bool:
    if isinstance(value, torch.nn.Parameter):
        return False
    if isinstance(value, torch.Tensor):
        is_new = is_virtual(value) and value.layout is torch.strided and first is not None
        has_graph = value.requires_grad and (is_view(value) or not value.is_leaf)
        return has_graph or (is_new and entry_of(value).number >= (first or 0))
    entries: Iterable[object] = ()
    if depth < _MOST_DEPTH:
        entries = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(_is_of_iteration(each, first, depth + 1) for each in itertools.islice(entries, _MOST_ENTRIES))

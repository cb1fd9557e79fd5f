"""The variables of the environment that this process reads."""

import os
from collections.abc import Callable
from typing import Any

_getitem = os._Environ.__getitem__
_listeners: list[Callable[[Any], None]] = []


def hear_reads(listener: Callable[[Any], None]) -> None:
    """Call `listener` with the name of each variable that is read from now on, as long as this process lives."""
    _listeners.append(listener)
    os._Environ.__getitem__ = _read  # type: ignore[method-assign]


def note_read(name: Any) -> None:
    """Tell all listeners. TorchDynamo calls it, and does not follow it."""
    for listener in _listeners:
        listener(name)


def _read(environment: "os._Environ[Any]", name: Any) -> Any:
    """Stand in for `os._Environ.__getitem__`. TorchDynamo follows it: compiled code may read variables."""
    note_read(name)
    return _getitem(environment, name)

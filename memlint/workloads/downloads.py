"""Weights that a model would fetch: they change no size, so nothing is downloaded and nothing is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from memlint.accelerator.private import LoadedKeys
from memlint.base.ownership import is_users
from memlint.memory.records import Assumption, Frame

_COPIES = (
    ("torch.utils.model_zoo", "load_url"),
    ("torchvision._internally_replaced_utils", "load_state_dict_from_url"),
    ("torchvision.models._api", "load_state_dict_from_url"),
)
"""Modules that have the function under a name of their own, where they were imported before."""
_asked: dict[str, Frame | None] = {}
"""Addresses of weights, with the lines of the user's that asked for them first."""


class Absent(dict[str, Any]):
    """A state dict that is not on this machine."""

    def __missing__(self, _name: str) -> Absent:
        return self


def install() -> None:
    """Let modules that are imported from now on find weights that leave a model as it is."""
    if torch.hub.load_state_dict_from_url is not _fetched:
        torch.hub.load_state_dict_from_url = _fetched
        nn.Module.load_state_dict = loading(nn.Module.load_state_dict)  # type: ignore[method-assign]
        for name, attribute in _COPIES:
            if name in sys.modules:
                setattr(sys.modules[name], attribute, _fetched)


def assumptions() -> list[Assumption]:
    """Which weights were not fetched."""
    text = "is not downloaded: weights change no size"
    return [Assumption(f"{url} {text}", frame) for url, frame in _asked.items()]


def _fetched(url: str, *_arguments: object, **_named: object) -> Absent:
    frame = sys._getframe(1)
    while frame.f_back is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    place = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    _asked.setdefault(url, place if is_users(place.path) else None)
    return Absent()


def loading(load: Callable[..., Any]) -> Callable[..., Any]:
    """`load_state_dict`, which leaves a model as it is where its weights are absent."""

    def load_state_dict(self: nn.Module, state_dict: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(state_dict, Absent):
            return LoadedKeys([], [])
        return load(self, state_dict, *arguments, **named)

    return load_state_dict

"""Weights that a model would download: they change no size, so memlint neither downloads nor loads them."""

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
"""Modules that hold the function under names of their own if they were imported before."""
_asked: dict[str, Frame | None] = {}
"""Addresses of weights, with the lines of the user's code that first requested them."""


class Absent(dict[str, Any]):
    """The state dict of weights that are not on this machine."""

    def __missing__(self, _name: str) -> Absent:
        return self


def install() -> None:
    """Let modules that are imported from now on get absent weights, which leave a model unchanged."""
    if torch.hub.load_state_dict_from_url is not _fetched:
        torch.hub.load_state_dict_from_url = _fetched
        nn.Module.load_state_dict = loading(nn.Module.load_state_dict)  # type: ignore[method-assign]
        for name, attribute in _COPIES:
            if name in sys.modules:
                setattr(sys.modules[name], attribute, _fetched)


def assumptions() -> list[Assumption]:
    """Return the assumptions about weights that were not downloaded."""
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
    """Wrap `load_state_dict` so that absent weights leave the model unchanged."""

    def load_state_dict(self: nn.Module, state_dict: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(state_dict, Absent):
            return LoadedKeys([], [])
        return load(self, state_dict, *arguments, **named)

    return load_state_dict

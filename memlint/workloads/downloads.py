"""Weights that a model would download or load: they change no size, so memlint does without them."""

from __future__ import annotations

import sys

import torch

from memlint.base.ownership import is_users
from memlint.memory.records import Assumption, Frame
from memlint.workloads.absent_weights import Absent
from memlint.workloads.missing_checkpoints import replace_loads

_COPIES = (
    ("torch.utils.model_zoo", "load_url"),
    ("torchvision._internally_replaced_utils", "load_state_dict_from_url"),
    ("torchvision.models._api", "load_state_dict_from_url"),
)
"""Modules that hold the function under names of their own if they were imported before."""
_asked: dict[str, Frame | None] = {}
"""Assumptions about weights, with the lines of the user's code that first requested them."""


def install() -> None:
    """Let modules that are imported from now on get absent weights, which leave a model unchanged."""
    if torch.hub.load_state_dict_from_url is not _fetched:
        torch.hub.load_state_dict_from_url = _fetched
        replace_loads(setattr, _ask)
        for name, attribute in _COPIES:
            if name in sys.modules:
                setattr(sys.modules[name], attribute, _fetched)


def assumptions() -> list[Assumption]:
    """Return the assumptions about weights that were not downloaded or loaded."""
    return [Assumption(text, frame) for text, frame in _asked.items()]


def _fetched(url: str, *_arguments: object, **_named: object) -> Absent:
    _ask(f"{url} is not downloaded: weights change no size")
    return Absent(OSError(f"{url} is not downloaded"))


def _ask(text: str) -> None:
    frame = sys._getframe(1)
    while frame.f_back is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    place = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    _asked.setdefault(text, place if is_users(place.path) else None)

"""Weights and tokenizers that a model would download or load: memlint does without them, as far as sizes allow."""

from __future__ import annotations

import sys

import torch

from memlint.workloads.absent_weights import Absent
from memlint.workloads.fake_processors import replace_processors
from memlint.workloads.fake_tokenizers import replace_tokenizers
from memlint.workloads.notes import note_assumption
from memlint.workloads.pretrained import replace_pretrained

_COPIES = (
    ("torch.utils.model_zoo", "load_url"),
    ("torchvision._internally_replaced_utils", "load_state_dict_from_url"),
    ("torchvision.models._api", "load_state_dict_from_url"),
)
"""Modules that hold the function under names of their own if they were imported before."""


def install() -> None:
    """Let modules that are imported from now on get absent or random weights, whichever leaves a model its sizes."""
    if torch.hub.load_state_dict_from_url is not _fetched:
        torch.hub.load_state_dict_from_url = _fetched
        replace_pretrained(setattr)
        replace_tokenizers(setattr, fake=True)
        replace_processors(setattr, fake=True)
        for name, attribute in _COPIES:
            if name in sys.modules:
                setattr(sys.modules[name], attribute, _fetched)


def _fetched(url: str, *_arguments: object, **_named: object) -> Absent:
    note_assumption(f"{url} is not downloaded: weights change no size")
    return Absent(OSError(f"{url} is not downloaded"))

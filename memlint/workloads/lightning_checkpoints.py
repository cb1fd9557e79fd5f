"""Models that a program loads from a checkpoint of Lightning that is not there: their constructors say their sizes."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from memlint.base.after_import import after_import
from memlint.workloads.notes import note_replaced

if TYPE_CHECKING:
    from types import ModuleType

    from memlint.workloads.missing_checkpoints import Put

_MODULES = ("lightning.pytorch.core.module", "pytorch_lightning.core.module")
_LOADS = "_load_from_checkpoint"
"""Name of the function of these modules that builds a model from a checkpoint."""
_OF_LOADING = frozenset(("map_location", "hparams_file", "strict", "weights_only"))
"""Arguments that are not for the constructor."""


def replace_lightning(put: Put) -> None:
    """Build a model whose checkpoint is not there with the arguments that the program gives, and random weights."""
    for module in _MODULES:
        after_import(module, functools.partial(_replace, put))


def _replace(put: Put, module: ModuleType) -> None:
    load = getattr(module, _LOADS)

    @functools.wraps(load)
    def loaded(cls: Any, checkpoint_path: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return load(cls, checkpoint_path, *arguments, **named)
        except FileNotFoundError as error:
            given = {name: value for name, value in named.items() if name not in _OF_LOADING}
            try:
                model = cls(**given)
            except TypeError:  # nobody knows what the checkpoint has for arguments that are required
                raise error from None
            shown = os.fspath(checkpoint_path) if isinstance(checkpoint_path, str | os.PathLike) else "its file"
            text = f"the checkpoint {shown} is not there: {cls.__name__} has random weights"
            note_replaced(f"{text}, and the sizes that its constructor takes by itself")
            return model

    put(module, _LOADS, loaded)

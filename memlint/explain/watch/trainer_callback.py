"""The watch as a callback of Hugging Face's Trainer, which tells its callbacks of no exception."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memlint.explain.watch.watching import Watching

_BASE: Any = importlib.import_module("transformers.trainer_callback").TrainerCallback


class TrainerWatch(_BASE):  # type: ignore[misc]
    """Begins and ends with the training; an exception that ends the program is explained."""

    def __init__(self, watch: Watching) -> None:
        self.watch = watch

    def on_train_begin(self, *_arguments: Any, **_keywords: Any) -> None:
        """Begin to record."""
        self.watch.begin()
        self.watch.hook()

    def on_step_end(self, *_arguments: Any, **_keywords: Any) -> None:
        """Count a step."""
        self.watch.step()

    def on_train_end(self, *_arguments: Any, **_keywords: Any) -> None:
        """End the recording."""
        self.watch.end()

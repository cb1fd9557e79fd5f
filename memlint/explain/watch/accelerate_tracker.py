"""The watch as a tracker of accelerate, which has no callbacks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memlint.explain.watch.watching import Watching


_BASE: Any = importlib.import_module("accelerate.tracking").GeneralTracker


class AccelerateWatch(_BASE):  # type: ignore[misc]
    """Begins with `accelerator.init_trackers`, ends with `accelerator.end_training`."""

    name = "memlint"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, watch: Watching) -> None:
        super().__init__()
        self._watch = watch

    @property
    def tracker(self) -> Watching:
        """The watch itself."""
        return self._watch

    def start(self) -> None:
        """Begin to record."""
        self._watch.begin()
        self._watch.hook()

    def log(self, values: dict[str, Any], step: int | None = None, **_keywords: Any) -> None:  # noqa: ARG002
        """Count a step."""
        self._watch.step()

    def finish(self) -> None:
        """End the recording."""
        self._watch.end()

"""Modules of the project that Python or a library imports by a name that it was given, and not by a line of a file.

Such are the module of `python -m`, that of a command which the project declares, and the config modules and `_target_`s
of hydra and its like. Where the project is installed they are found, and so they are here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType

from memlint.accelerator import state
from memlint.source.console_scripts import folder_of_package

_IMPORTERS = frozenset(("runpy", "pkgutil", "hydra", "jsonargparse", "gin"))
"""Modules that import by a name which they were given."""
_BETWEEN = ("importlib", "contextlib", "functools")


class NamedModules(MetaPathFinder):
    """Import hook behind all others: it finds the packages of the project that one of the importers asks for."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """The packages are in one of `folders`."""
        self._folders = folders

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Find a package whose name has no dot: its modules are found in it."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and str(frame.f_globals.get("__name__")).startswith(_BETWEEN):
            frame = frame.f_back
        top = "" if frame is None else str(frame.f_globals.get("__name__")).partition(".")[0]
        folder = folder_of_package(fullname, self._folders) if top in _IMPORTERS and "." not in fullname else None
        if folder is None:
            return None
        state.assume_once(f"{fullname} is in {folder}, which is taken to be on the search path")
        return PathFinder.find_spec(fullname, [str(folder)])

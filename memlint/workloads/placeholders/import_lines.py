"""The lines of the user's code that import something, and whether they can do without."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import linecache
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from memlint.base.guarded_imports import is_guarded, statements_at
from memlint.base.ownership import is_users
from memlint.memory.records import Frame

_IMPORTING = (
    *("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"),
    importlib.import_module.__code__.co_filename,
)
"""Files that import; `importlib.util.find_spec`, which only asks, is in another."""


_OWN = f"{Path(__file__).parent}{os.sep}"


def is_own(path: str) -> bool:
    """Return True for a file of this package."""
    return path.startswith(_OWN)


def caller() -> FrameType:
    """Return the innermost running frame outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def asking() -> FrameType | None:
    """Return the frame of the import statement, if it is in a file of the user's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename in _IMPORTING or is_own(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame if frame is not None and is_users(frame.f_code.co_filename) else None


def behind_package(package: str) -> FrameType | None:
    """Return the frame of the import statement in a file of the user's that has this package import parts of itself."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (
        frame.f_code.co_filename in _IMPORTING
        or is_own(frame.f_code.co_filename)
        or str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ):
        frame = frame.f_back
    return frame if frame is not None and is_users(frame.f_code.co_filename) else None


def imported(frame: Frame) -> Iterator[str]:
    """Yield dotted names of the modules that this line may import."""
    for node in statements_at(frame.path, frame.line):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_optional(frame: FrameType | None) -> bool:
    """Return True if a file of the user's that is importing, in `frame` or outside of it, can do without that."""
    while frame is not None:
        path, line = frame.f_code.co_filename, frame.f_lineno
        if is_users(path) and _imports_at(path, line) and is_guarded(path, line):
            return True
        frame = frame.f_back
    return False


def _imports_at(path: str, line: int) -> bool:
    """Return True if the line imports a module, by a statement or a function."""
    nodes = (node for node in statements_at(path, line) if isinstance(node, ast.Import | ast.ImportFrom))
    return next(nodes, None) is not None or "import_module" in linecache.getline(path, line)

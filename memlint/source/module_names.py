"""Under which name Python imports a file, and from which folder."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from memlint.base.errors import TargetError, WorkloadError

if TYPE_CHECKING:
    from pathlib import Path


def module_name(path: Path) -> tuple[str, Path]:
    """Dotted name for the file and the folder it is found from.

    Raises WorkloadError for a file that is not valid Python, TargetError for one that cannot be read.
    """
    folder, parts = path.parent, [path.stem]
    if path.name == "__init__.py":
        folder, parts = path.parent.parent, [path.parent.name]
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    # Relative imports in folders without __init__.py: these are namespace packages.
    while len(parts) <= _relative_levels(path) and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), folder


def _relative_levels(path: Path) -> int:
    """How many folders up the file's relative imports reach: 1 for `from .layers import Block`."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise WorkloadError(f"{path}{line} is not valid Python: {error}") from error
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}") from error
    return max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)

"""The Python files below files and directories that were named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SKIPPED_DIRECTORIES = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv"})


def python_files(paths: Iterable[str | Path]) -> Iterator[Path]:
    """Yield the files named, and the `.py` and `.pyi` files below the directories named, sorted, each once.

    Hidden directories and those of environments and builds are not searched unless named.
    """
    seen: set[Path] = set()
    for path in map(Path, paths):
        for file in _below(path) if path.is_dir() else (path,):
            if file not in seen:
                seen.add(file)
                yield file


def _below(directory: Path) -> Iterator[Path]:
    for root, directories, files in os.walk(directory):
        directories[:] = sorted(
            name
            for name in directories
            if not name.startswith(".")
            and name not in _SKIPPED_DIRECTORIES
            and not Path(root, name, "pyvenv.cfg").exists()
        )
        yield from (Path(root, name) for name in sorted(files) if name.endswith((".py", ".pyi")))

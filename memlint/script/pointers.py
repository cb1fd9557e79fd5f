"""Finds files that Git LFS keeps elsewhere: a checkout made without it has pointers in their place."""

import os
from collections.abc import Iterator
from pathlib import Path

_HEADER = b"version https://git-lfs.github.com/spec/"
_MOST_BYTES = 1024
"""A pointer has fewer bytes (git-lfs/docs/spec.md)."""


def pointers(folder: Path) -> Iterator[str]:
    """Yield the pointers below the nearest folder at or above `folder` whose .gitattributes names Git LFS."""
    for root in (folder, *folder.parents):
        attributes = root / ".gitattributes"
        if attributes.is_file():
            if "filter=lfs" in attributes.read_text(encoding="utf-8", errors="replace"):
                yield from _below(root)
            return
        if (root / ".git").exists():
            return


def is_pointer(path: Path) -> bool:
    """Return True if the file at `path` is a pointer."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size < _MOST_BYTES and file.read(len(_HEADER)) == _HEADER
    except OSError:
        return False


def _below(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = (each for each in folders if not each.startswith("."))
        yield from (str(path) for name in names if is_pointer(path := Path(folder, name)))

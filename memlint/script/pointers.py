"""Finds files that Git LFS keeps elsewhere: a checkout made without it has pointers in their place."""

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

_HEADER = b"version https://git-lfs.github.com/spec/"
_MOST_BYTES = 1024
"""A pointer has fewer bytes (git-lfs/docs/spec.md)."""


def pointers(folder: Path) -> Iterator[str]:
    """Yield the pointers below the nearest folder at or above `folder` whose .gitattributes names Git LFS."""
    for root in (folder, *folder.parents):
        attributes = root / ".gitattributes"
        if attributes.is_file():
            lines = attributes.read_text(encoding="utf-8", errors="replace").splitlines()
            patterns = [line.split()[0] for line in lines if "filter=lfs" in line]
            if patterns:
                yield from _below(root, patterns)
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


def _below(root: Path, patterns: Sequence[str]) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = (each for each in folders if not each.startswith("."))
        paths = (Path(folder, name) for name in names)
        kept = (path for path in paths if any(_matches(path, root, pattern) for pattern in patterns))
        yield from map(str, filter(is_pointer, kept))


def _matches(path: Path, root: Path, pattern: str) -> bool:
    return fnmatch(path.name, pattern) or fnmatch(path.relative_to(root).as_posix(), pattern.lstrip("/"))

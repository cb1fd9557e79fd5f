"""Imports of files that have not changed since, kept in `.memlint_cache`: one entry for each file."""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.base import cache as cachedir
from memlint.base.version import __version__
from memlint.source.imports import Import, Imports, imports_in
from memlint.source.text import Unreadable, read_bytes

if TYPE_CHECKING:
    from typing import Any

_KIND = "imports"
_ENGINE = ("imports.py", "trees.py", "text.py")


class KeptImports:
    """Reads what files import, and keeps it below the project at `root`, or nowhere if that is None."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._known: dict[Path, Imports] = {}

    def __call__(self, path: Path) -> Imports:
        """What the file at `path` imports; undecided where it is there and cannot be read."""
        if path not in self._known:
            try:
                self._known[path] = self._of(path, read_bytes(path))
            except Unreadable:
                self._known[path] = Imports(undecided=os.path.exists(path))  # noqa: PTH110 -- no name is too long
        return self._known[path]

    def _of(self, path: Path, content: bytes) -> Imports:
        if self._root is None:
            return imports_in(content, str(path))
        name = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:32]
        key = hashlib.sha256(_engine() + content).hexdigest()
        kept = _decoded(cachedir.read(self._root, _KIND, name), key)
        if kept is not None:
            return kept
        imports = imports_in(content, str(path))
        cachedir.write(self._root, _KIND, name, {"key": key, **_encoded(imports)})
        return imports


def _encoded(imports: Imports) -> dict[str, Any]:
    return {"modules": sorted(imports.modules), "files": sorted(imports.files), "undecided": imports.undecided}


def _decoded(entry: Any, key: str) -> Imports | None:
    with suppress(KeyError, TypeError, ValueError):
        if entry["key"] == key:
            modules = frozenset(Import(module, level, tuple(names)) for module, level, names in entry["modules"])
            return Imports(modules, frozenset(entry["files"]), bool(entry["undecided"]))
    return None


@cache
def _engine() -> bytes:
    """Tell versions of what reads imports apart."""
    digest = hashlib.sha256(f"{__version__}\0{sys.version}\0".encode())
    for name in _ENGINE:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.digest()

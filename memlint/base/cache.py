"""`.memlint_cache`: small JSON files below one project.

Each file says what it is valid for, and an entry that is valid for something else is made anew. Writing replaces a file
at once, so any number of runs may share a cache. A cache that cannot be read or written is none.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME = ".memlint_cache"
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by memlint; see https://bford.info/cachedir/\n"


def read(root: Path, kind: str, name: str) -> Any:
    """What was written as `name` among the entries of this `kind`; None if there is nothing that can be read."""
    try:
        return json.loads(_file(root, kind, name).read_bytes())
    except (OSError, ValueError):
        return None


def write(root: Path, kind: str, name: str, entry: Any) -> None:
    """Keep `entry`, which JSON can hold. Nothing happens where there is no room or no permission."""
    file = _file(root, kind, name)
    with suppress(OSError):
        _prepare(root / NAME, file.parent)
        handle, written = tempfile.mkstemp(dir=file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as opened:
                json.dump(entry, opened)
            Path(written).replace(file)
        except BaseException:
            Path(written).unlink(missing_ok=True)
            raise


def clean(root: Path) -> Path | None:
    """Remove the cache of the project at `root`; give the directory that was removed, None if there was none."""
    directory = root / NAME
    if directory.is_symlink() or not (directory / "CACHEDIR.TAG").is_file():
        return None
    shutil.rmtree(directory)
    return directory


def _file(root: Path, kind: str, name: str) -> Path:
    return root / NAME / kind / f"{name}.json"


def _prepare(directory: Path, entries: Path) -> None:
    entries.mkdir(parents=True, exist_ok=True)
    if not (directory / "CACHEDIR.TAG").is_file():
        for file, text in ((".gitignore", "*\n"), ("CACHEDIR.TAG", _TAG)):
            (directory / file).write_text(text, encoding="utf-8")

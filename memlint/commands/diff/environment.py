"""The environment in which a revision is analysed: its own code goes before what is installed from the working tree."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlint.commands.diff.checkouts import Checkout

_IMPORT_PATHS = """
import json, os, sys
from importlib.metadata import distributions
from urllib.parse import urlsplit
from urllib.request import url2pathname

paths = [path for path in sys.path if path]
for each in distributions():
    origin = json.loads(each.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        folder = url2pathname(urlsplit(origin["url"]).path)
        source = os.path.join(folder, "src")
        paths.append(source if os.path.isdir(source) else folder)
ours = ("memlint", "memlint_rules")
print(json.dumps([path for path in paths if not any(os.path.isdir(os.path.join(path, name)) for name in ours)]))
"""
"""Asks an environment where it imports from: its path, and what `pip install -e` finds otherwise, but for memlint."""


def environment_of(python: Sequence[str], place: Checkout) -> dict[str, str]:
    """The variables for a run in `place` of the `python` given with its options.

    What is imported from below the working tree comes from the same folder of the revision, and so does what the
    revision has below `src`. Other folders with code memlint's workers put first themselves.
    """
    if place.original is None or place.root is None:
        return dict(os.environ)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    moved = (_moved(path, place.original, place.root) for path in (*known, *_import_paths(python)))
    own = dict.fromkeys([str(place.directory / "src"), *(str(path) for path in moved if path is not None)])
    paths = [*(path for path in own if Path(path).is_dir()), *filter(None, known)]
    return {**os.environ, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


def _import_paths(python: Sequence[str]) -> list[str]:
    try:
        asked = subprocess.run([*python, "-c", _IMPORT_PATHS], capture_output=True, text=True, check=False)
        return list(json.loads(asked.stdout)) if asked.returncode == 0 else []
    except (OSError, ValueError):  # what is wrong with it, the run itself says
        return []


def _moved(path: str, original: Path, root: Path) -> Path | None:
    """The folder of the revision that stands for one of the working tree; None for what is not in that."""
    folder, real = Path(path).resolve(), original.resolve()
    return root / folder.relative_to(real) if Path(path).is_absolute() and folder.is_relative_to(real) else None

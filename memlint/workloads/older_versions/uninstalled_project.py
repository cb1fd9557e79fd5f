"""The version of the project itself, which it asks for as if it was installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
_NAME = re.compile(r"\bname\s*=\s*[\"']?([\w.-]+)")
_VERSION = "0.0.0"
"""One that no project states; most have theirs from git."""


def is_of_project_around(name: str, file: Path) -> bool:
    """Return True if a folder around `file`, an absolute path, has the project with the distribution `name`."""
    for place in (folder / each for folder in file.parents for each in _FILES):
        with suppress(OSError, UnicodeDecodeError):
            if any(_plain(each) == _plain(name) for each in _NAME.findall(place.read_text(encoding="utf-8"))):
                return True
    return False


def with_metadata(name: str) -> None:
    """Let importlib.metadata find the distribution `name`, with a version and without files."""
    sys.meta_path.append(_Finder(name))


class _Own(metadata.Distribution):
    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        text = f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {_VERSION}\n"
        return text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return Path(path)


class _Finder(metadata.DistributionFinder):
    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, *_args: Any) -> None:
        return None

    def find_distributions(self, context: Any = None) -> Iterator[metadata.Distribution]:
        if context is None or context.name is None or _plain(context.name) == _plain(self._name):
            yield _Own(self._name)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()

"""The words of a project's files, kept in its cache: which files can mention a name is known without reading them."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from memlint.base import cache

READS_EVENT = "memlint.reads"
"""Audit event for a file of which something is known without opening it: an answer depends on its content too."""
_KIND = "words"
_BREAKS = bytes(byte if re.match(rb"[A-Za-z0-9_]", bytes([byte])) else ord(" ") for byte in range(256))
"""Table for `bytes.translate`: everything but letters, digits and underscores of ASCII becomes a space."""
_PARTS = re.compile(r"[A-Za-z0-9_]+")
_IN_DOUBT_NS = 2 * 10**9
"""A file changed so shortly before it was read may change again without another time: it is not indexed."""


class _Entry(NamedTuple):
    """One file as it was when it was read, and where its words stand."""

    num_bytes: int
    time_ns: int
    start: int
    end: int


@dataclass
class WordIndex:
    """Words of files below one folder. Files that it does not know, or that changed since, may mention anything."""

    root: Path
    entries: Mapping[str, _Entry]
    """By path below the root."""
    words: Any
    """Bytes: the words of one file after the other, each once, between newlines."""
    _with: dict[str, frozenset[str]] = field(default_factory=dict)
    _paths: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path) -> Self:
        """Read what is kept in the project's cache; empty where there is nothing."""
        entries = cache.read(root, _KIND, str(root), cache.key_of(), _decoded)
        words = cache.read_bytes(root, _KIND, str(root)) if entries else None
        last = max((each.end for each in entries.values()), default=0) if entries else 0
        if not entries or words is None or len(words) != last:
            return cls(root, {}, b"")
        return cls(root, entries, words)

    def updated(self, paths: Iterable[Path], most_nbytes: int) -> Self:
        """Return an index of `paths`, which takes over the files that have not changed, and keep it.

        Files larger than `most_nbytes` are not read.
        """
        entries: dict[str, _Entry] = {}
        parts: list[bytes] = []
        position = 0
        is_same = True
        now = time.time_ns()
        for path in paths:
            name = self._name(path)
            with suppress(OSError):
                status = path.stat()
                known = self.entries.get(name)
                if known is not None and known[:2] == (status.st_size, status.st_mtime_ns):
                    words = self.words[known.start : known.end]
                elif status.st_size > most_nbytes or now - status.st_mtime_ns < _IN_DOUBT_NS:
                    continue
                else:
                    is_same = False
                    words = _words_of(path.read_bytes())
                entries[name] = _Entry(status.st_size, status.st_mtime_ns, position, position + len(words))
                parts.append(words)
                position += len(words)
        if is_same and len(entries) == len(self.entries):
            return self
        index = type(self)(self.root, entries, b"".join(parts))
        index._keep()
        return index

    def _keep(self) -> None:
        cache.write_bytes(self.root, _KIND, str(self.root), self.words)
        files = [[name, *entry] for name, entry in self.entries.items()]
        cache.write(self.root, _KIND, str(self.root), cache.key_of(), {"files": files})

    def unknown(self, paths: Iterable[Path]) -> frozenset[Path]:
        """Return those of `paths` that it does not know, or not as they are now."""
        unknown = set()
        for path in paths:
            known = self.entries.get(self._name(path))
            status = None
            if known is not None:
                with suppress(OSError):
                    status = os.stat(path)  # noqa: PTH116 -- thousands of them
            if known is None or status is None or known[:2] != (status.st_size, status.st_mtime_ns):
                unknown.add(path)
            else:
                sys.audit(READS_EVENT, str(path))
        return frozenset(unknown)

    def files_with(self, words: Collection[str], endings: Collection[str] = ()) -> frozenset[Path]:
        """Return the files that contain one of `words`, of each all parts of ASCII letters, or a word so ending."""
        names: set[str] = set()
        for word in words:
            parts = [self._files_with(part) for part in _PARTS.findall(word)]
            names |= frozenset.intersection(*parts) if parts else self.entries.keys()
        names.update(*(self._files_with(ending, "") for ending in endings))
        return frozenset(map(self._path, names))

    def _path(self, name: str) -> Path:
        if name not in self._paths:
            self._paths[name] = self.root / name
        return self._paths[name]

    def _name(self, path: Path) -> str:
        return str(path).removeprefix(f"{self.root}/")

    def _files_with(self, word: str, before: str = "\n") -> frozenset[str]:
        """Return the files that have a word of ASCII letters; of an ending nothing stands before it."""
        key = f"{before}{word}\n"
        if key not in self._with:
            sought, found, place = key.encode(), [], -1
            for name, entry in self.entries.items():  # in the order of their words
                if place < entry.start and (place := self.words.find(sought, entry.start)) < 0:
                    break
                if place < entry.end:
                    found.append(name)
            self._with[key] = frozenset(found)
        return self._with[key]


def _words_of(content: bytes) -> bytes:
    return b"\n%b\n" % b"\n".join({*content.translate(_BREAKS).split()})


def _decoded(entry: Any) -> dict[str, _Entry]:
    return {name: _Entry(*fields) for name, *fields in entry["files"]}

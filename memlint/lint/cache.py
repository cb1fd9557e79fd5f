"""What source rules found in files that have not changed since, kept in `.memlint_cache`.

There is one entry for each Python file, named after its path.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.base import cache as cachedir
from memlint.base.version import __version__
from memlint.lint.finding_json import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memlint.lint.rule import Finding, Rule

_KIND = "source"
_ENGINE = Path(__file__).parents[1]


class Cache:
    """The entries below one project, for one choice of rules."""

    def __init__(self, root: Path, fingerprint: str) -> None:
        self.root = root.resolve()
        self.fingerprint = fingerprint
        """What the findings depend on besides the file: see `fingerprint_of`."""

    def read(self, path: str, content: bytes) -> list[Finding] | None:
        """Give what was found in the file at `path` when it had this content; None if that is not known."""
        entry = cachedir.read(self.root, _KIND, self._entry(path))
        with suppress(KeyError, TypeError, ValueError):
            if entry["key"] == self._key(path, content):
                return [from_json(fields, path) for fields in entry["findings"]]
        return None

    def write(self, path: str, content: bytes, findings: Iterable[Finding]) -> None:
        """Keep what was found in the file at `path` with this content."""
        entry = {"key": self._key(path, content), "findings": [to_json(finding, path) for finding in findings]}
        cachedir.write(self.root, _KIND, self._entry(path), entry)

    def _entry(self, path: str) -> str:
        return _digest(self._name(path).encode())[:32]

    def _key(self, path: str, content: bytes) -> str:
        return _digest(f"{self.fingerprint}\0{self._name(path)}\0".encode() + content)

    def _name(self, path: str) -> str:
        """The path below the root, so that a cache can be moved together with its project."""
        return os.path.relpath(os.path.realpath(path), self.root)


def fingerprint_of(rules: Collection[Rule], codes: Collection[str] | None) -> str:
    """Digest everything but the file that findings depend on.

    That is the version of memlint and of Python, the rules that were chosen and the `codes` that comments may name, and
    the content of the modules of memlint's linter and of the packages that the rules are from, as far as they are
    loaded.
    """
    digest = hashlib.sha256()
    settings = (
        __version__,
        sys.version,
        sorted(rule.code for rule in rules),
        sorted(codes) if codes is not None else None,
    )
    digest.update(json.dumps(settings).encode())
    for file in sorted({*_engine_files(), *_rule_files(rules)}):
        digest.update(f"\0{file}\0".encode())
        with suppress(OSError):
            digest.update(Path(file).read_bytes())
    return digest.hexdigest()


def _engine_files() -> list[str]:
    return [str(file) for package in ("source", "lint") for file in (_ENGINE / package).glob("*.py")]


def _rule_files(rules: Iterable[Rule]) -> list[str]:
    packages = {type(rule).__module__.partition(".")[0] for rule in rules} - {"memlint"}
    loaded = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in packages]
    return [file for module in loaded if (file := getattr(module, "__file__", None))]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

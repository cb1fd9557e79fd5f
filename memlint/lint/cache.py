"""What source rules found in files that have not changed since, kept in `.memlint_cache`.

There is one small JSON file for each Python file, named after its path; it says what it is valid for, and an entry that
is valid for something else is made anew. Writing replaces a file at once, so any number of runs may share a cache. A
cache that cannot be read or written is none.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from memlint import __version__
from memlint.lint.finding_json import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memlint.lint.rule import Finding, Rule

NAME = ".memlint_cache"
_ENGINE = Path(__file__).parents[1]
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by memlint; see https://bford.info/cachedir/\n"


class Cache:
    """The entries below one project, for one choice of rules."""

    def __init__(self, root: Path, fingerprint: str) -> None:
        self.root = root.resolve()
        self.fingerprint = fingerprint
        """What the findings depend on besides the file: see `fingerprint_of`."""
        self._entries = self.root / NAME / "source"

    def read(self, path: str, content: bytes) -> list[Finding] | None:
        """Give what was found in the file at `path` when it had this content; None if that is not known."""
        try:
            entry = json.loads(self._entry(path).read_bytes())
            if entry["key"] == self._key(path, content):
                return [from_json(fields, path) for fields in entry["findings"]]
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def write(self, path: str, content: bytes, findings: Iterable[Finding]) -> None:
        """Keep what was found in the file at `path` with this content."""
        entry = {"key": self._key(path, content), "findings": [to_json(finding, path) for finding in findings]}
        with suppress(OSError):
            self._prepare()
            handle, name = tempfile.mkstemp(dir=self._entries)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(entry, file)
            try:
                Path(name).replace(self._entry(path))
            except OSError:
                Path(name).unlink(missing_ok=True)

    def _prepare(self) -> None:
        if not self._entries.is_dir():
            self._entries.mkdir(parents=True, exist_ok=True)
            for file, text in ((".gitignore", "*\n"), ("CACHEDIR.TAG", _TAG)):
                (self.root / NAME / file).write_text(text, encoding="utf-8")

    def _entry(self, path: str) -> Path:
        return self._entries / f"{_digest(self._name(path).encode())[:32]}.json"

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
    return [str(_ENGINE / "source.py"), str(_ENGINE / "nodes.py"), *map(str, (_ENGINE / "lint").glob("*.py"))]


def _rule_files(rules: Iterable[Rule]) -> list[str]:
    packages = {type(rule).__module__.partition(".")[0] for rule in rules} - {"memlint"}
    loaded = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in packages]
    return [file for module in loaded if (file := getattr(module, "__file__", None))]


def clean(root: Path) -> Path | None:
    """Remove the cache of the project at `root`; give the directory that was removed, None if there was none."""
    directory = root / NAME
    if directory.is_symlink() or not (directory / "CACHEDIR.TAG").is_file():
        return None
    shutil.rmtree(directory)
    return directory


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

"""The findings of source rules in unchanged files, kept in `.memlint_cache`: one entry for each file."""

import functools
import json
import os
import sys
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from memlint.base import cache as cachedir
from memlint.lint.rule import Finding, Rule

_KIND = "source"


class Cache:
    """The entries below one project, for one choice of rules."""

    def __init__(self, root: Path, fingerprint: str) -> None:
        self.root = root.resolve()
        self.fingerprint = fingerprint
        """The digest of everything but the file that the findings depend on: see `fingerprint_of`."""

    def read(self, path: str, content: bytes) -> list[Finding] | None:
        """Give what was found in the file at `path` when it had this content; None if that is not known."""
        subject = self._subject(path)
        return cachedir.read(
            self.root,
            _KIND,
            subject,
            cachedir.key_of(self.fingerprint, subject, content),
            lambda entry: [from_json(fields, path) for fields in entry["findings"]],
        )

    def write(self, path: str, content: bytes, findings: Iterable[Finding]) -> None:
        """Keep what was found in the file at `path` with this content."""
        subject = self._subject(path)
        key = cachedir.key_of(self.fingerprint, subject, content)
        cachedir.write(self.root, _KIND, subject, key, {"findings": [to_json(finding, path) for finding in findings]})

    def _subject(self, path: str) -> str:
        """The path below the root, so that a cache can be moved together with its project."""
        return os.path.relpath(os.path.realpath(path), self.root)


def fingerprint_of(rules: Collection[Rule], codes: Collection[str] | None) -> str:
    """Digest everything but the file that findings depend on.

    That is, besides memlint and Python, the rules that were chosen and the `codes` that comments may name, and the
    content of the modules of the packages that the rules are from, as far as they are loaded.
    """
    choice = json.dumps([sorted(rule.code for rule in rules), sorted(codes) if codes is not None else None])
    modules = (part for file in sorted(_rule_files(rules)) for part in (file, Path(file).read_bytes()))
    return cachedir.key_of(choice, *modules)


def _rule_files(rules: Iterable[Rule]) -> list[str]:
    packages = {type(rule).__module__.partition(".")[0] for rule in rules} - {"memlint", "memlint_rules"}
    loaded = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in packages]
    return [file for module in loaded if (file := getattr(module, "__file__", None)) and Path(file).is_file()]


@functools.cache
def _adapter() -> TypeAdapter[Finding]:
    """Make it once there is a finding: most files have none, and this takes longer than to read what is kept."""
    return TypeAdapter(Finding)


def to_json(finding: Finding, path: str) -> Any:
    """Give a Finding as JSON has it, without the path of the file that was read: a cache may be moved."""
    return _adapter().dump_python(replace(finding, path="") if finding.path == path else finding, mode="json")


def from_json(fields: Any, path: str) -> Finding:
    """Make the Finding in the file at `path` again; ValueError if `fields` are not its."""
    finding = _adapter().validate_python(fields)
    return finding if finding.path else replace(finding, path=path)

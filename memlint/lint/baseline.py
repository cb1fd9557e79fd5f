"""Baselines: findings that were there before, and are not to be reported again.

A finding is known by its file, its code and the text of its line, so that it stays known when lines are added above it.
One on line 1 is about the whole file, and known by file and code alone: that line says nothing about it.
Each entry counts how many such findings there were: one more than that is new.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memlint.base.errors import UsageError
from memlint.base.writing import write_file
from memlint.lint.diagnostics import BrokenRule, UnreadableFile
from memlint.lint.suppression import Located
from memlint.source.files import Unreadable, decode, read_bytes

NEVER_KNOWN = frozenset({UnreadableFile.code, BrokenRule.code})
"""Codes that no baseline holds: a run that left something out has to say so."""

F = TypeVar("F", bound=Located)


class Entry(NamedTuple):
    """The key of a finding: findings with the same key are the same."""

    path: str
    """POSIX, relative to the folder of the baseline."""
    code: str
    text: str
    """The text of the line, without indentation; empty for line 1, and if it cannot be read."""


class _Counted(BaseModel):
    model_config = ConfigDict(extra="ignore")

    path: str
    code: str
    text: str
    count: int = Field(gt=0)


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore")

    version: Literal[1]
    findings: list[_Counted]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The findings that are known, and how many of each."""

    file: Path
    counts: Counter[Entry]

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read the baseline in `file`; raises UsageError if there is none."""
        again = f"Write it with: memlint check --write-baseline {file}"
        try:
            document = _Document.model_validate_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UsageError(f"the baseline {file} does not exist", again) from error
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the baseline {file} cannot be read: {error}", again) from error
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            reason = f"{place}: {first['msg']}" if place else first["msg"]
            raise UsageError(f"{file} is no baseline: {reason}", again) from error
        counts: Counter[Entry] = Counter()
        for known in document.findings:
            counts[Entry(known.path, known.code, known.text)] += known.count
        return cls(file, counts)

    @classmethod
    def of(cls, findings: Iterable[Located], file: Path) -> Self:
        """Make the baseline for `findings` that belongs into `file`; paths in them count from the current directory."""
        texts = _Texts()
        entries = (_entries(finding, file, texts)[0] for finding in findings if finding.code not in NEVER_KNOWN)
        return cls(file, Counter(entries))

    def write(self) -> None:
        """Write it, sorted; raises UsageError if that fails."""
        entries = [{**entry._asdict(), "count": count} for entry, count in sorted(self.counts.items())]
        text = json.dumps({"version": 1, "findings": entries}, indent=2) + "\n"
        write_file(self.file, text.encode())

    def split(self, findings: Iterable[F]) -> tuple[list[F], Counter[Entry]]:
        """Tell new findings from known ones: the new ones, and what was known and is not among `findings`."""
        texts = _Texts()
        left = Counter(self.counts)
        new = []
        for finding in findings:
            entry = next((each for each in _entries(finding, self.file, texts) if left[each] > 0), None)
            if entry is not None and finding.code not in NEVER_KNOWN:
                left[entry] -= 1
            else:
                new.append(finding)
        return new, +left

    def stale(self, missing: Counter[Entry], judged: Callable[[str, str], bool]) -> list[tuple[Entry, int]]:
        """Choose the entries of `missing` that are gone for certain, with their counts.

        Their file is gone, or the text of their line, or `judged(path, code)` says that their rule has looked for them.
        """
        texts = _Texts()
        gone = []
        for entry, count in sorted(missing.items()):
            file = str(self.file.parent / entry.path)
            lines = texts.of(file)
            if (
                not Path(file).exists()
                or (entry.text and lines and entry.text not in lines)
                or judged(file, entry.code)
            ):
                gone.append((entry, count))
        return gone


class _Texts:
    """Lines of files without indentation, each file read once."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[str, ...]] = {}

    def of(self, path: str) -> tuple[str, ...]:
        if path not in self._lines:
            try:
                text = decode(read_bytes(path), path)[0]
                self._lines[path] = tuple(line.strip() for line in re.split(r"\r\n|\r|\n", text))
            except Unreadable:
                self._lines[path] = ()
        return self._lines[path]

    def at(self, path: str, line: int) -> str:
        lines = self.of(path)
        return lines[line - 1] if 0 < line <= len(lines) else ""


def _entries(finding: Located, file: Path, texts: _Texts) -> tuple[Entry, ...]:
    """The entry of the finding, and for line 1 the one in baselines of older versions, which has its text."""
    folder = os.path.realpath(file.parent)
    path = Path(os.path.relpath(os.path.realpath(finding.path), folder)).as_posix()
    by_text = Entry(path, finding.code, texts.at(finding.path, finding.line))
    return (by_text._replace(text=""), by_text) if finding.line == 1 else (by_text,)

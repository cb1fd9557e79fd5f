"""Correcting files: the edits of findings are applied in rounds, until no rule has any left to make.

A round applies Corrections that do not overlap, and the rules then read the result. What would not parse is never kept,
and nothing is written here but by `Fixed.write`.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from memlint.base.errors import TargetError
from memlint.base.writing import replace_content
from memlint.lint.rule import Applicability, Correction, Edit, Finding
from memlint.source.files import Unreadable, decode, read_bytes
from memlint.source.text import Source

_LINE_END = re.compile(r"\r\n|\r|\n")
_MAX_ROUNDS = 50
"""Corrections that go on longer than this undo each other."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A file before and after its corrections."""

    path: str
    before: bytes
    after: bytes
    codes: tuple[str, ...]
    """The codes of the corrected findings, one each."""

    def diff(self) -> str:
        """Show what changes, as a unified diff."""
        old, new = (decode(content, self.path)[0] for content in (self.before, self.after))
        lines = difflib.unified_diff(_lines(old), _lines(new), self.path, self.path)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def write(self) -> None:
        """Put the new content in the place of the old, at once and with the same mode.

        Raises TargetError if the file may not be written or is no longer what was read.
        """
        file = Path(self.path).resolve()  # a link stays one
        try:
            if file.read_bytes() != self.before:
                raise TargetError(f"{self.path} was changed while it was being corrected", "Run the command again.")
            if not os.access(file, os.W_OK):
                raise TargetError(f"{self.path} may not be written", "Give yourself the right, or leave it out.")
            replace_content(file, self.after)
        except OSError as error:
            raise TargetError(f"{self.path} cannot be written: {error.strerror}", "Correct it by hand.") from error


def fix_file(path: str, check: Callable[[Source], Iterable[Finding]], *, unsafe: bool = False) -> Fixed | None:
    """Make the Corrections of what `check` finds, the unsafe ones too if asked; None where there are none.

    Raises Unreadable.
    """
    before = read_bytes(path)
    original, encoding = decode(before, path)
    if original.encode(encoding) != before:
        return None  # bytes that the encoding would write in another way
    mark = "\ufeff" * original.startswith("\ufeff")
    original = original.removeprefix(mark)
    text, codes = fix_text(_LINE_END.sub("\n", original), path, check, unsafe=unsafe)
    if not codes:
        return None
    return Fixed(path, before, (mark + with_line_ends(text, original)).encode(encoding), codes)


def fix_text(
    text: str, path: str, check: Callable[[Source], Iterable[Finding]], *, unsafe: bool = False
) -> tuple[str, tuple[str, ...]]:
    """Give `text` with its Corrections made, and the code of each finding corrected. Raises Unreadable."""
    codes: list[str] = []
    for _ in range(_MAX_ROUNDS):
        corrections = [
            (finding.code, finding.correction)
            for finding in check(Source.from_text(text, path))
            if finding.correction is not None and (unsafe or finding.correction.applicability is Applicability.SAFE)
        ]
        better, made = _round(text, path, corrections)
        if not made:
            break
        text = better
        codes += made
    return text, tuple(codes)


def _round(text: str, path: str, corrections: list[tuple[str, Correction]]) -> tuple[str, list[str]]:
    """Make those Corrections that do not overlap an earlier one; without those that leave something unparsable."""
    chosen = disjoint(corrections)
    better = apply(text, [edit for _code, correction in chosen for edit in correction.edits])
    if _parses(better, path):
        return better, [code for code, _correction in chosen] if better != text else []
    better, made = text, []
    kept: list[Edit] = []
    for code, correction in chosen:
        candidate = apply(text, [*kept, *correction.edits])
        if _parses(candidate, path):
            better, kept = candidate, [*kept, *correction.edits]
            made.append(code)
    return better, made if better != text else []


def disjoint(corrections: Iterable[tuple[str, Correction]]) -> list[tuple[str, Correction]]:
    """Choose, from the start of the file on, those that begin after the one before has ended."""
    chosen: list[tuple[str, Correction]] = []
    last = -1
    for code, correction in sorted(corrections, key=lambda each: (_extent(each[1]), each[0])):
        start, end = _extent(correction)
        if start > last:
            chosen.append((code, correction))
            last = end
    return chosen


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Make edits, none of which overlaps another; two at the same place are made in the order given."""
    parts, done = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        assert done <= edit.start <= edit.end <= len(text), "edits overlap or lie outside of the text"
        parts += [text[done : edit.start], edit.text]
        done = edit.end
    return "".join([*parts, text[done:]])


def with_line_ends(text: str, original: str) -> str:
    """Give the lines of `text` the ends they have in `original`, and new ones the end that is most common there."""
    ends = _LINE_END.findall(original)
    usual = max(set(ends), key=ends.count, default="\n")
    if len(set(ends)) < 2:
        return text.replace("\n", usual)
    lines = text.split("\n")
    line_ends = [usual] * (len(lines) - 1)
    matcher = difflib.SequenceMatcher(None, _LINE_END.split(original), lines, autojunk=False)
    for old, new, length in matcher.get_matching_blocks():
        for number in range(min(length, len(ends) - old, len(line_ends) - new)):
            line_ends[new + number] = ends[old + number]
    for number in range(1, len(line_ends)):
        if line_ends[number - 1] == "\r" and not lines[number] and line_ends[number] == "\n":
            line_ends[number] = "\r\n"  # or the two would be one
    return "".join(line + end for line, end in zip(lines, [*line_ends, ""], strict=True))


def _extent(correction: Correction) -> tuple[int, int]:
    return min(edit.start for edit in correction.edits), max(edit.end for edit in correction.edits)


def _parses(text: str, path: str) -> bool:
    try:
        Source.from_text(text, path)
    except Unreadable:
        return False
    return True


def _lines(text: str) -> list[str]:
    """Lines with their ends, split as Python's parser splits them."""
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
    return lines if lines[-1] else lines[:-1]

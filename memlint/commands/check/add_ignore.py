"""`--add-ignore`: writing suppression comments for findings into their files.

A comment goes on a line of its own above the statement of the finding, where no formatter has to move code for it; if
there is one already, the code is added to it. Encoding, line ends and everything else in the file stay as they are, and
a file is only written if its comments then suppress what they are for and its code is the same.
"""

import ast
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from memlint.lint.diagnostics import DIAGNOSTICS
from memlint.report.model import Finding
from memlint.source.comments import Suppression
from memlint.source.files import Unreadable, decode, read_bytes
from memlint.source.text import Source

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_CODES = re.compile(r"ignore\[([^\]]*)\]")
_OWN = frozenset(diagnostic.code for diagnostic in DIAGNOSTICS)


@dataclass(frozen=True, slots=True)
class Added:
    """The comments that were written, and those that were not."""

    num_findings: int
    files: list[str]
    left: list[tuple[Finding, str]]
    """Findings that were not suppressed, and why."""


def add_comments(findings: Iterable[Finding], files: Iterable[Path]) -> Added:
    """Suppress `findings` by comments in those of their files that are among `files`; memlint's own are left alone."""
    named = {file.resolve() for file in files}
    left: list[tuple[Finding, str]] = []
    by_file: defaultdict[Path, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.code in _OWN:
            left.append((finding, "memlint's own findings are not suppressed"))
        elif Path(finding.path).resolve() not in named:
            left.append((finding, "its file was not named"))
        else:
            by_file[Path(finding.path)].append(finding)
    num_suppressed = 0
    written = []
    for file, group in sorted(by_file.items()):
        left_here = _add_to_file(file, group)
        left += left_here
        if len(left_here) < len(group):
            num_suppressed += len(group) - len(left_here)
            written.append(str(file))
    return Added(num_suppressed, written, left)


def _add_to_file(file: Path, findings: list[Finding]) -> list[tuple[Finding, str]]:
    """Suppress the findings in one file; those that were not, and why."""
    try:
        source = Source.read(file)
        text, encoding = decode(read_bytes(file), str(file))
        edited, refused = with_comments(source, text, findings)
        if edited != text:
            file.write_bytes(edited.encode(encoding))
    except Unreadable as error:
        return [(finding, f"the file {error.reason}") for finding in findings]
    except OSError as error:
        return [(finding, f"the file cannot be written: {error.strerror}") for finding in findings]
    return [(finding, "no comment can stand there") for finding in refused]


def with_comments(source: Source, text: str, findings: list[Finding]) -> tuple[str, list[Finding]]:
    """Give the text of a Source, its line ends kept, with comments for as many findings as possible, and the others."""
    possible = findings
    while possible:
        edit = _Edit(source, _LINE.findall(text))
        for finding in possible:
            edit.suppress(finding)
        suppressed = edit.check(possible)
        if len(suppressed) == len(possible):
            return edit.text(), [finding for finding in findings if finding not in possible]
        possible = suppressed
    return text, findings


@dataclass(slots=True)
class _Edit:
    """Comments to be written into a file."""

    source: Source
    lines: list[str]
    """Lines with their ends."""
    above: dict[int, list[str]] = field(default_factory=dict)
    """Codes of a new comment above each line."""
    whole_file: list[str] = field(default_factory=list)
    more: dict[int, tuple[Suppression, list[str]]] = field(default_factory=dict)
    """Codes to add to the comment that stands on a line."""

    def suppress(self, finding: Finding) -> None:
        """Plan the comment for one finding. Those of a Workload without a line of its own stand on line 1."""
        everywhere = finding.line == 1 and finding.workload is not None
        span = (1, len(self.source.lines)) if everywhere else self.source.covered(finding.line)
        for comment in self.source.suppressions:
            if (
                comment.origin == "memlint"
                and comment.whole_file == everywhere
                and (comment.first, comment.last) == span
            ):
                codes = self.more.setdefault(comment.line, (comment, list(comment.codes)))[1]
                break
        else:
            codes = self.whole_file if everywhere else self.above.setdefault(span[0], [])
        if finding.code not in codes:
            codes.append(finding.code)

    def text(self) -> str:
        """The file with all comments."""
        first = self._first_statement()
        written = []
        for number, line in enumerate(self.lines, 1):
            end = line[len(line.rstrip("\r\n")) :] or "\n"
            if number == first and self.whole_file:
                written.append(f"# memlint: file-ignore[{', '.join(self.whole_file)}]{end}")
            if number in self.above:
                indentation = line[: len(line) - len(line.lstrip())].rstrip("\r\n")
                written.append(f"{indentation}# memlint: ignore[{', '.join(self.above[number])}]{end}")
            written.append(self._with_more_codes(number, line))
        return "".join(written)

    def _with_more_codes(self, number: int, code: str) -> str:
        if number not in self.more:
            return code
        comment, codes = self.more[number]
        start = comment.column - 1
        return code[:start] + _CODES.sub(f"ignore[{', '.join(codes)}]", code[start:], count=1)

    def check(self, findings: Iterable[Finding]) -> list[Finding]:
        """Those of `findings` that the text will suppress; none if its code would not be the same."""
        try:
            after = Source.from_text(self.text(), self.source.path)
            if ast.dump(after.tree) != ast.dump(self.source.tree):
                return []
        except (Unreadable, RecursionError):
            return []
        inserted = sorted([*self.above, *([self._first_statement()] if self.whole_file else [])])
        return [
            finding
            for finding in findings
            if after.suppressed(finding.code, finding.line + bisect_right(inserted, finding.line))
        ]

    def _first_statement(self) -> int:
        body = self.source.tree.body
        return min(self.source.covered(body[0].lineno)[0], body[0].lineno) if body else 1

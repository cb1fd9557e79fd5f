"""Comments that suppress findings: `# memlint: ignore[MEM107] reason`, and `# noqa: MEM107` as in other linters."""

import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from memlint.base.grouping import grouped
from memlint.source.files import Unreadable

_MARKS = re.compile(r"memlint\s*:|noqa\s*:", re.IGNORECASE)
_OWN = re.compile(r"#\s*memlint\s*:\s*(?P<order>[^#]*)", re.IGNORECASE)
_IGNORE = re.compile(
    r"(?P<form>ignore|file-ignore)\[\s*(?P<codes>[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)\s*\](?:\s+(?P<reason>.*))?\s*"
)
_NOQA = re.compile(r"#\s*noqa\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)", re.IGNORECASE)
_CODE = re.compile(r"[A-Z]+[0-9]+")
_OTHER_WORDS = {"ignore-file": "file-ignore", "skip-file": "file-ignore", "disable": "ignore", "noqa": "ignore"}
"""Names that other linters use for these comments."""


@dataclass(frozen=True, slots=True)
class Suppression:
    """A comment that suppresses findings: codes, the lines `first` to `last` it covers, and its place."""

    codes: tuple[str, ...]
    reason: str
    first: int
    last: int
    line: int
    column: int
    origin: str
    """`memlint` or `noqa`."""
    whole_file: bool = False
    """True for a `file-ignore`."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A comment that begins like a suppression and is none: its place, its text and its correction."""

    line: int
    column: int
    comment: str
    hint: str


def marked_comments(
    path: str, text: str, covered: Callable[[int], tuple[int, int]]
) -> Iterator[Suppression | Malformed]:
    """Yield every comment in `text` that is, or begins like, a suppression, in file order.

    `covered` gives the first and last line that a comment belonging to a line covers; `path` only names the file.
    Raises Unreadable.
    """
    lines = text.split("\n")
    marked = [number for number, line in enumerate(lines, 1) if _MARKS.search(line)] if _MARKS.search(text) else []
    passages = grouped((covered(number)[0], number) for number in marked)
    try:
        comments = [each for first, within in sorted(passages.items()) for each in _comments(lines, first, within)]
    except (tokenize.TokenError, SyntaxError):  # a statement begins in the line where another ends
        try:
            comments = _comments(lines, 1, marked)
        except (tokenize.TokenError, SyntaxError) as error:
            raise Unreadable(path, 1, f"cannot be split into tokens: {error}") from error
    for line, start, comment in comments:
        alone = not lines[line - 1][:start].strip()
        span = covered(_next_code_line(lines, line) if alone else line)
        if own := _OWN.search(comment):
            order, column = own["order"].strip(), start + own.start() + 1
            ignore = _IGNORE.fullmatch(order)
            whole_file = ignore is not None and ignore["form"] == "file-ignore"
            if ignore is None or (whole_file and not alone):
                yield Malformed(line, column, comment[own.start() :].strip(), _correction(order))
            else:
                codes, reason = tuple(_CODE.findall(ignore["codes"])), (ignore["reason"] or "").strip()
                lines_covered = (1, len(lines)) if whole_file else span
                yield Suppression(codes, reason, *lines_covered, line, column, "memlint", whole_file)
        if noqa := _NOQA.search(comment):
            codes = tuple(_CODE.findall(noqa["codes"].upper()))
            yield Suppression(codes, "", *span, line, start + noqa.start() + 1, "noqa")


def _comments(lines: Sequence[str], first: int, marked: Sequence[int]) -> list[tuple[int, int, str]]:
    """Return the comments on the lines `marked`, where the text is read from the line `first` on, as few as it takes.

    Each has its line, the characters before it and its text.
    """
    comments = []
    for token in tokenize.generate_tokens((f"{line}\n" for line in lines[first - 1 :]).__next__):
        line = token.start[0] + first - 1
        if token.type == tokenize.COMMENT and line in marked and _MARKS.search(token.string):
            comments.append((line, token.start[1], token.string))
        if line >= marked[-1] and token.type in (tokenize.COMMENT, tokenize.NEWLINE):
            break
    return comments


def _next_code_line(lines: Sequence[str], line: int) -> int:
    for number, text in enumerate(map(str.strip, lines[line:]), line + 1):
        if text and not text.startswith("#"):
            return number
    return line


def _correction(order: str) -> str:
    """Return the correction of a comment that says `order` after `memlint:`."""
    word, bracket, rest = order.partition("[")
    word, *after = word.split() or [""]
    codes = ", ".join(_CODE.findall(order.upper())) or "MEM107"
    if word not in {"ignore", "file-ignore"}:
        close = get_close_matches(word.lower(), ["ignore", "file-ignore"], n=1, cutoff=0.7)
        meant = _OTHER_WORDS.get(word.lower()) or (close[0] if close else "")
        if not meant:
            return f"There are `# memlint: ignore[{codes}] reason` and `# memlint: file-ignore[{codes}] reason`."
        return f"Did you mean `# memlint: {meant}[{codes}] reason`?"
    if _IGNORE.fullmatch(order):  # the correct form elsewhere
        return "Put `file-ignore` on a line of its own, or write `ignore` for this line alone."
    if not _CODE.search(order.upper()):
        return f"Name the codes, as in `# memlint: {word}[MEM107] reason`: nothing silences every rule."
    if bracket and not after and "]" in rest and _IGNORE.fullmatch(f"{word}[{rest.partition(']')[0]}]"):
        return f"Put a space between `]` and the reason: `# memlint: {word}[{codes}] reason`."
    return f"Write `# memlint: {word}[{codes}] reason`, with whole codes in brackets, by comma."

"""Python files as text, syntax tree, names and suppression comments. No user code runs here.

Reading never crashes: whatever keeps a file from being understood is an `Unreadable` naming the file,
the line where that is known, and the reason.
"""

from __future__ import annotations

import ast
import io
import re
import stat
import tokenize
import warnings
from bisect import bisect_right
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.base.errors import TargetError
from memlint.source.trees import Index, statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_SOURCE_NBYTES = 8 * 2**20
"""Files above this are not parsed: a syntax tree takes about a hundred times the text, and nobody writes such files."""

_MARKS = re.compile(r"memlint\s*:|noqa\s*:", re.IGNORECASE)
_OWN = re.compile(r"#\s*memlint\s*:\s*(?P<order>[^#]*)", re.IGNORECASE)
_IGNORE = re.compile(
    r"(?P<form>ignore|file-ignore)\[\s*(?P<codes>[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)\s*\](?:\s+(?P<reason>.*))?\s*"
)
_NOQA = re.compile(r"#\s*noqa\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)", re.IGNORECASE)
_CODE = re.compile(r"[A-Z]+[0-9]+")
_WORD_BYTES = bytes(byte if re.match(rb"[A-Za-z0-9_]", bytes([byte])) else ord(" ") for byte in range(256))
"""For `bytes.translate`: everything but letters, digits and underscores of ASCII becomes a space."""
_OTHER_WORDS = {"ignore-file": "file-ignore", "skip-file": "file-ignore", "disable": "ignore", "noqa": "ignore"}
"""What other linters call these comments."""


class Unreadable(TargetError):  # noqa: N818 -- TargetError is its suffix
    """A file that cannot be read or parsed; `line` is 1 where the line is not known."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Suppression:
    """A comment that takes findings away: codes, the lines `first` to `last` it covers, and where it stands."""

    codes: tuple[str, ...]
    reason: str
    first: int
    last: int
    line: int
    column: int
    origin: str
    """`memlint` or `noqa`."""
    whole_file: bool = False
    """Whether it is a `file-ignore`."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A comment that begins like a suppression and is none: where it stands, what it says and how to mend it."""

    line: int
    column: int
    comment: str
    hint: str


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: str
    text: str
    """Decoded, without byte order mark, every line end a single newline."""
    tree: ast.Module

    @classmethod
    def read(cls, path: str | Path) -> Source:
        """Read the file at `path`, decoded as Python would; raises Unreadable."""
        return cls.from_bytes(read_bytes(path), str(path))

    @classmethod
    def from_bytes(cls, content: bytes, path: str) -> Source:
        """Decode `content` as Python would and parse it; `path` only names it. Raises Unreadable."""
        return cls.from_text(decode(content, path)[0], path)

    @classmethod
    def from_text(cls, text: str, path: str) -> Source:
        """Parse `text`, which `path` only names; raises Unreadable."""
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text, path)
        except SyntaxError as error:
            raise Unreadable(path, error.lineno or 1, f"is not valid Python: {error.msg}") from error
        except ValueError as error:
            raise Unreadable(path, 1, f"is not Python source: {error}") from error
        except (RecursionError, MemoryError) as error:
            raise Unreadable(path, 1, "is nested too deeply for Python's parser") from error
        return cls(path, text, tree)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Lines without their ends; line n of the file is `lines[n - 1]`."""
        return tuple(self.text.split("\n"))

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """Where each of `lines` begins in `text`, counted in characters from 0."""
        return (0, *accumulate(len(line) + 1 for line in self.lines[:-1]))

    @cached_property
    def words(self) -> frozenset[str]:
        """Every name, keyword and other word of ASCII letters and digits, those of comments and strings included.

        To look for a few words here is quicker than a regular expression over the text.
        """
        return frozenset(self.text.encode(errors="replace").translate(_WORD_BYTES).decode().split())

    def mentions(self, *texts: str) -> bool:
        """Whether one of `texts`, which are in lower case, stands anywhere in the file in any case.

        This is much quicker than a regular expression with alternatives.
        """
        return any(text in self._lowered for text in texts)

    @cached_property
    def _lowered(self) -> str:
        return self.text.lower()

    @cached_property
    def statements(self) -> tuple[ast.AST, ...]:
        """All statements, handlers and cases, outer before inner: quicker to have than `index`."""
        return tuple(statements(self.tree))

    @cached_property
    def index(self) -> Index:
        """Every node of the tree and what holds it."""
        return Index(self.tree)

    @cached_property
    def suppressions(self) -> tuple[Suppression, ...]:
        """Every suppression comment, in file order."""
        return tuple(comment for comment in self._marked_comments if isinstance(comment, Suppression))

    @cached_property
    def malformed(self) -> tuple[Malformed, ...]:
        """Every comment that begins with `memlint:` and is no suppression."""
        return tuple(comment for comment in self._marked_comments if isinstance(comment, Malformed))

    @cached_property
    def _marked_comments(self) -> tuple[Suppression | Malformed, ...]:
        if not self.mentions("memlint", "noqa") or not _MARKS.search(self.text):
            return ()
        return tuple(_read_comments(self))

    @cached_property
    def imports(self) -> Mapping[str, str]:
        """What each imported or aliased name stands for: `F` -> `torch.nn.functional`.

        A name imported twice keeps its first meaning; `from torch import *` is the entry `*`.
        """
        return _imports(self.statements)

    def qualified_name(self, node: ast.expr) -> str | None:
        """`torch.nn.functional.relu` for `F.relu` under the file's imports; None where the root was not imported."""
        name, dot, rest = dotted_name(node).partition(".")
        root = self.imports.get(name)
        if root is None and "*" in self.imports and name and not dot:
            root = f"{self.imports['*']}.{name}"
        return None if root is None else root + dot + rest

    def suppressed(self, code: str, line: int) -> bool:
        """Whether a comment takes a finding of `code` on `line` away."""
        firsts, lasts = self._suppressed_lines.get(code, ((), ()))
        position = bisect_right(firsts, line)
        return position > 0 and line <= lasts[position - 1]

    @cached_property
    def _suppressed_lines(self) -> dict[str, tuple[list[int], list[int]]]:
        """By code: first lines of what its comments cover, ascending, and the highest line covered up to each."""
        spans: dict[str, list[tuple[int, int]]] = {}
        for comment in self.suppressions:
            for code in comment.codes:
                spans.setdefault(code, []).append((comment.first, comment.last))
        ordered = {code: sorted(covered) for code, covered in spans.items()}
        return {
            code: ([first for first, _last in covered], list(accumulate((last for _first, last in covered), max)))
            for code, covered in ordered.items()
        }

    def covered(self, line: int) -> tuple[int, int]:
        """First and last line that a comment belonging to `line` covers.

        That is a whole simple statement, the header of a compound one, all of a function or class; a line outside of
        these covers itself.
        """
        return self._spans.get(line, (line, line))

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        """What `covered` says, for every line of a statement's head: that of the innermost statement on it."""
        begun: dict[int, int] = {}
        spans: dict[int, tuple[int, int]] = {}
        for node in self.statements:
            if isinstance(node, ast.stmt | ast.ExceptHandler):
                start, head_end, end = _extent(node)
                for line in range(start, head_end + 1):
                    if start >= begun.get(line, 0):
                        begun[line], spans[line] = start, (start, end)
        return spans


def read_bytes(path: str | Path) -> bytes:
    """Give the content of a Python file; raises Unreadable."""
    name = str(path)
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(name, 1, "is not a regular file")
        if status.st_size > MAX_SOURCE_NBYTES:
            raise Unreadable(name, 1, f"is larger than {MAX_SOURCE_NBYTES // 2**20} MiB and was not parsed")
        return Path(path).read_bytes()
    except OSError as error:
        raise Unreadable(name, 1, f"cannot be read: {error.strerror or error}") from error


def decode(content: bytes, path: str) -> tuple[str, str]:
    """Decode a Python file as Python would: its text, line ends as they are, and the name of its encoding.

    Raises Unreadable.
    """
    try:
        encoding, _lines = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding), encoding
    except UnicodeDecodeError as error:
        raise _not_text(content, path, error) from error
    except SyntaxError as error:
        try:
            content.decode()  # what Python looks at for a coding comment has to be UTF-8
        except UnicodeDecodeError as wrong:
            raise _not_text(content, path, wrong) from error
        raise Unreadable(path, 1, f"has an encoding Python does not know: {error.msg}") from error


def _not_text(content: bytes, path: str, error: UnicodeDecodeError) -> Unreadable:
    line = content[: error.start].count(b"\n") + 1
    return Unreadable(path, line, f"is not {error.encoding} text, and no coding comment says what it is")


def dotted_name(node: ast.AST) -> str:
    """`self.model` as it is written; empty for anything but names and their attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def _imports(nodes: Iterable[ast.AST]) -> dict[str, str]:
    names: dict[str, str] = {}
    aliases: list[tuple[str, ast.expr]] = []
    for node in nodes:
        if isinstance(node, ast.Assign):
            if not isinstance(node.value, ast.Attribute | ast.Name):
                continue
            aliases += [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for name, meaning in _bound_by(node):
                names.setdefault(name, meaning)
    for name, value in aliases:
        root, dot, rest = dotted_name(value).partition(".")
        if root in names and root != name:
            names.setdefault(name, names[root] + dot + rest)
    return names


def _bound_by(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for item in node.names:
            name = item.asname or item.name.partition(".")[0]
            yield name, item.name if item.asname else name
        return
    module = "." * node.level + (node.module or "")
    for item in node.names:
        if item.name == "*":
            yield "*", module
        else:
            yield item.asname or item.name, f"{module}{'' if module.endswith('.') else '.'}{item.name}"


def _read_comments(source: Source) -> Iterator[Suppression | Malformed]:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source.text).readline))
    except (tokenize.TokenError, SyntaxError) as error:
        raise Unreadable(source.path, 1, f"cannot be split into tokens: {error}") from error
    for token in tokens:
        if token.type != tokenize.COMMENT or not _MARKS.search(token.string):
            continue
        line = token.start[0]
        alone = not token.line[: token.start[1]].strip()
        first, last = source.covered(_next_code_line(source, line) if alone else line)
        own = _OWN.search(token.string)
        if own is not None:
            column = token.start[1] + own.start() + 1
            ignore = _IGNORE.fullmatch(own["order"].strip())
            whole_file = ignore is not None and ignore["form"] == "file-ignore"
            if ignore is None or (whole_file and not alone):
                yield Malformed(line, column, token.string[own.start() :].strip(), _correction(own["order"].strip()))
            else:
                codes, reason = tuple(_CODE.findall(ignore["codes"])), (ignore["reason"] or "").strip()
                span = (1, len(source.lines)) if whole_file else (first, last)
                yield Suppression(codes, reason, *span, line, column, "memlint", whole_file)
        noqa = _NOQA.search(token.string)
        if noqa is not None:
            column = token.start[1] + noqa.start() + 1
            codes = tuple(_CODE.findall(noqa["codes"].upper()))
            yield Suppression(codes, "", first, last, line, column, "noqa")


def _next_code_line(source: Source, line: int) -> int:
    for number in range(line + 1, len(source.lines) + 1):
        text = source.lines[number - 1].strip()
        if text and not text.startswith("#"):
            return number
    return line


def _correction(order: str) -> str:
    """How to mend a comment that says `order` after `memlint:`."""
    word, bracket, rest = order.partition("[")
    word, *after = word.split() or [""]
    codes = ", ".join(_CODE.findall(order.upper())) or "MEM107"
    if word not in {"ignore", "file-ignore"}:
        close = get_close_matches(word.lower(), ["ignore", "file-ignore"], n=1, cutoff=0.7)
        meant = _OTHER_WORDS.get(word.lower()) or (close[0] if close else "")
        if not meant:
            return f"There are `# memlint: ignore[{codes}] reason` and `# memlint: file-ignore[{codes}] reason`."
        return f"Did you mean `# memlint: {meant}[{codes}] reason`?"
    if _IGNORE.fullmatch(order):  # as it would be right elsewhere
        return "Put `file-ignore` on a line of its own, or write `ignore` for this line alone."
    if not _CODE.search(order.upper()):
        return f"Name the codes, as in `# memlint: {word}[MEM107] reason`: nothing silences every rule."
    if bracket and not after and "]" in rest and _IGNORE.fullmatch(f"{word}[{rest.partition(']')[0]}]"):
        return f"Put a space between `]` and the reason: `# memlint: {word}[{codes}] reason`."
    return f"Write `# memlint: {word}[{codes}] reason`, with whole codes in brackets, by comma."


def _extent(node: ast.stmt | ast.ExceptHandler) -> tuple[int, int, int]:
    """First line of a statement, last line of its head, and last line of what a comment in its head covers."""
    start, end = node.lineno, node.end_lineno or node.lineno
    if isinstance(node, ast.Match):
        end = max(start, node.cases[0].pattern.lineno - 1)
        return start, end, end
    body: list[ast.stmt] = getattr(node, "body", [])
    if not body:
        return start, end, end
    head_end = max(start, _start(body[0]) - 1)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return _start(node), head_end, end
    return start, head_end, head_end


def _start(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])

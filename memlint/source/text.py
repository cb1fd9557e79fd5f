"""One Python file as text, syntax tree, names and suppression comments. No user code runs here."""

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Self

from memlint.base.grouping import grouped
from memlint.source.comments import Malformed, Suppression, marked_comments
from memlint.source.files import Unreadable, decode, read_bytes
from memlint.source.trees import Index, comment_spans, parsed_again, statements

_WORD_BYTES = bytes(byte if re.match(rb"[A-Za-z0-9_]", bytes([byte])) else ord(" ") for byte in range(256))
"""Table for `bytes.translate`: everything but letters, digits and underscores of ASCII becomes a space."""


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: str
    text: str
    """Text, decoded, without byte order mark, every line end a single newline."""
    tree: ast.Module

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read the file at `path`, decoded as Python would; raises Unreadable."""
        return cls.from_bytes(read_bytes(path), str(path))

    @classmethod
    def from_bytes(cls, content: bytes, path: str) -> Self:
        """Decode `content` as Python would and parse it; `path` only names it. Raises Unreadable."""
        return cls.from_text(decode(content, path)[0], path)

    @classmethod
    def from_text(cls, text: str, path: str, before: Self | None = None) -> Self:
        """Parse `text`, which `path` only names; raises Unreadable.

        If it differs from `before` within lines, only the statements of the file with these lines are parsed, and the
        trees of the others shared.
        """
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = None if before is None else parsed_again(before.tree, before.lines, text.split("\n"))
                tree = tree or ast.parse(text, path)
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
        """Start of each of `lines` in `text`, counted in characters from 0."""
        return (0, *accumulate(len(line) + 1 for line in self.lines[:-1]))

    @cached_property
    def words(self) -> frozenset[str]:
        """All names, keywords and other words of ASCII letters and digits, those of comments and strings included.

        Lookup of a few words here is faster than a regular expression over the text.
        """
        return frozenset(self.text.encode(errors="replace").translate(_WORD_BYTES).decode().split())

    def mentions(self, *texts: str) -> bool:
        """Return True if one of `texts`, which are in lower case, occurs anywhere in the file in any case.

        This is much quicker than a regular expression with alternatives.
        """
        return any(text in self._lowered for text in texts)

    @cached_property
    def _lowered(self) -> str:
        return self.text.lower()

    @cached_property
    def statements(self) -> tuple[ast.AST, ...]:
        """All statements, handlers and cases, outer before inner: faster to get than `index`."""
        return tuple(statements(self.tree))

    @cached_property
    def index(self) -> Index:
        """Every node of the tree and its parent."""
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
        if not self.mentions("memlint", "noqa"):
            return ()
        return tuple(marked_comments(self.path, self.text, self.covered))

    @cached_property
    def imports(self) -> Mapping[str, str]:
        """Full name of each imported or aliased name: `F` -> `torch.nn.functional`.

        A name imported twice keeps its first meaning; `from torch import *` is the entry `*`.
        """
        return _imports(self.statements)

    def qualified_name(self, node: ast.expr) -> str | None:
        """Return `torch.nn.functional.relu` for `F.relu` under the file's imports.

        None if the root was not imported.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        root = self.imports.get(node.id)
        if root is None and "*" in self.imports and not parts:
            root = f"{self.imports['*']}.{node.id}"
        return None if root is None else ".".join((root, *reversed(parts)))

    def suppressed(self, code: str, line: int) -> bool:
        """Return True if a comment suppresses a finding of `code` on `line`."""
        firsts, lasts = self._suppressed_lines.get(code, ((), ()))
        position = bisect_right(firsts, line)
        return position > 0 and line <= lasts[position - 1]

    @cached_property
    def _suppressed_lines(self) -> dict[str, tuple[list[int], list[int]]]:
        """By code: first lines covered by its comments, ascending, and the highest covered line up to each."""
        spans = grouped((code, (each.first, each.last)) for each in self.suppressions for code in each.codes)
        ordered = {code: sorted(covered) for code, covered in spans.items()}
        return {
            code: ([first for first, _last in covered], list(accumulate((last for _first, last in covered), max)))
            for code, covered in ordered.items()
        }

    def covered(self, line: int) -> tuple[int, int]:
        """Return the first and last line that a comment on `line` covers.

        It covers a whole simple statement, the header of a compound one, or all of a function or class; outside of
        these only its own line.
        """
        return self._spans.get(line, (line, line))

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        return comment_spans(self.statements)


def source_at(path: str | Path) -> Source | None:
    """Return the file as a Source; None if it cannot be read."""
    try:
        return Source.read(path)
    except Unreadable:
        return None


def dotted_name(node: ast.AST) -> str:
    """Return `self.model` as written; empty for anything but names and their attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def named(nodes: Iterable[ast.AST], name: str) -> Iterator[ast.Name | ast.Attribute]:
    """Yield those of `nodes` that are written as this dotted name."""
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and dotted_name(node) == name:
            yield node


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

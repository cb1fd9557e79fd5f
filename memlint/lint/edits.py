"""Edits that rules make out of nodes: they keep formatting and comments, or are not made at all."""

import ast
import io
import tokenize
from collections.abc import Iterator

from memlint.lint.rule import Applicability, Correction, Edit
from memlint.source.text import Source

_PRIMARIES = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
"""Expressions on which a method can be called without parentheses."""


def span(source: Source, node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Give first and last character of `node`, the last excluded. Parentheses around it are not counted."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return offset(source, node.lineno, node.col_offset), offset(source, node.end_lineno, node.end_col_offset)


def offset(source: Source, line: int, column: int) -> int:
    """Give the place in the text of a line from 1 and a column from 0 in UTF-8 bytes, which is how `ast` counts."""
    text = source.lines[line - 1]
    if not text.isascii():
        column = len(text.encode()[:column].decode())
    return source.line_starts[line - 1] + column


def with_method(source: Source, node: ast.expr, call: str) -> tuple[Edit, ...]:
    """Edits that make `node` into `node.call`, in parentheses where it needs them."""
    start, end = span(source, node)
    if isinstance(node, _PRIMARIES):
        return (Edit(end, end, f".{call}"),)
    return Edit(start, start, "("), Edit(end, end, f").{call}")


def with_argument(source: Source, call: ast.Call, text: str) -> tuple[Edit, ...]:
    """Edits that add an argument behind the last; none where there is no other, or parentheses end it."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not values:
        return ()
    last = max(span(source, value)[1] for value in values)
    behind = source.text[last : span(source, call)[1] - 1]
    return (Edit(last, last, f", {text}"),) if behind.split("#")[0].strip() in ("", ",") else ()


def without_statement(source: Source, statement: ast.stmt) -> tuple[Edit, ...]:
    """Edits that remove a statement that has its line or lines to itself; `pass` stays where nothing else would.

    A comment behind it stays. There are none where the statement shares a line with another, or has a comment within.
    """
    lines = whole_lines(source, statement)
    start, end = span(source, statement)
    if lines is None or "#" in source.text[start:end]:
        return ()
    parent = source.index.parents[statement]
    if any(getattr(parent, name, None) == [statement] for name in ("body", "orelse", "finalbody")):
        return (Edit(start, end, "pass"),)
    if source.text[end : lines[1]].strip():
        return (Edit(start, end + _leading(source.text[end : lines[1]]), ""),)
    return (Edit(*lines, ""),)


def without_argument(source: Source, call: ast.Call, value: ast.expr) -> tuple[Edit, ...]:
    """Edits that remove the only argument of a call; none where there are others, or a comment among them."""
    start, end = span(source, call.func)[1], span(source, call)[1]
    start = source.text.index("(", start) + 1
    if len(call.args) + len(call.keywords) != 1 or "#" in source.text[start:end]:
        return ()
    assert value in (*call.args, *(keyword.value for keyword in call.keywords))
    return (Edit(start, end - 1, ""),)


def written(source: Source, name: str) -> str | None:
    """How a function of an imported module, such as `torch.no_grad`, is written in any function of this file.

    None where the file does not import it outside of functions.
    """
    for statement in source.tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for item in statement.names:
                bound = item.asname or (item.name if isinstance(statement, ast.ImportFrom) else item.name.split(".")[0])
                meaning = source.imports.get(bound, "")
                if name == meaning or name.startswith(f"{meaning}."):
                    return bound + name.removeprefix(meaning)
    return None


def under(source: Source, statement: ast.stmt, context: str) -> tuple[Edit, ...]:
    """Edits that put a statement under `with context:`, indented by as much as its own body is, or by four spaces.

    Lines within strings stay where they are. There are no edits where the statement shares a line with another.
    """
    lines = whole_lines(source, statement)
    if lines is None or statement.end_lineno is None:
        return ()
    text = source.lines[statement.lineno - 1]
    indent = text[: _leading(text)]
    step = _step(source, statement, indent)
    in_strings = set(_lines_in_strings(source.text[slice(*lines)]))
    edits = [Edit(lines[0], lines[0], f"{indent}with {context}:\n{step}")]
    for number in range(statement.lineno + 1, statement.end_lineno + 1):
        line = source.lines[number - 1]
        if line.strip() and number - statement.lineno + 1 not in in_strings:
            place = source.line_starts[number - 1] + (len(indent) if line.startswith(indent) else 0)
            edits.append(Edit(place, place, step))
    return tuple(edits)


def whole_lines(source: Source, statement: ast.stmt) -> tuple[int, int] | None:
    """First and last character of the lines of `statement`; None if something else than a comment is on them too."""
    start, end = span(source, statement)
    first = source.line_starts[statement.lineno - 1]
    last = source.text.find("\n", end) + 1 or len(source.text)
    behind = source.text[end:last].strip()
    if source.text[first:start].strip() or (behind and not behind.startswith("#")):
        return None
    return first, last


def safe(edits: tuple[Edit, ...]) -> Correction | None:
    """Make a Correction that changes nothing but memory; None without edits."""
    return Correction(edits, Applicability.SAFE) if edits else None


def unsafe(edits: tuple[Edit, ...]) -> Correction | None:
    """Make a Correction that somebody has to look at; None without edits."""
    return Correction(edits, Applicability.UNSAFE) if edits else None


def _leading(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _step(source: Source, statement: ast.stmt, indent: str) -> str:
    """By how much the body of `statement` is indented more than itself."""
    body: list[ast.stmt] = getattr(statement, "body", [])
    text = source.lines[body[0].lineno - 1] if body else ""
    inner = text[: _leading(text)]
    if body and len(inner) == body[0].col_offset and inner.startswith(indent):
        return inner.removeprefix(indent)
    return "\t" if indent.endswith("\t") else "    "


def _lines_in_strings(text: str) -> Iterator[int]:
    """Numbers of the lines, from 1, that begin within a string."""
    opened: list[int] = []
    dedented = io.StringIO("if 1:\n" + text if text[:1] in " \t" else "\n" + text)
    for token in tokenize.generate_tokens(dedented.readline):
        name = tokenize.tok_name[token.type]
        if name in {"FSTRING_START", "TSTRING_START"}:
            opened.append(token.start[0])
        elif name == "STRING" or (name in {"FSTRING_END", "TSTRING_END"} and opened):
            first = opened.pop() if name != "STRING" else token.start[0]
            yield from range(first, token.end[0])

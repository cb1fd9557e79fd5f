"""Changes of texts as edits of the protocol, and places in a Source as its ranges."""

from bisect import bisect_right
from difflib import SequenceMatcher

from lsprotocol.types import Position, Range, TextEdit
from pygls.workspace import PositionCodec

from memlint.lint.edits import offset
from memlint.lint.rule import Edit, Finding
from memlint.source.text import Source


def line_edits(before: str, after: str) -> list[TextEdit]:
    """Make the edits of whole lines that turn one text into the other."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    edits = []
    for kind, first, last, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            edits.append(TextEdit(Range(Position(first, 0), Position(last, 0)), "".join(new[begin:end])))
    return edits


def character_edits(source: Source, edits: tuple[Edit, ...], codec: PositionCodec) -> list[TextEdit]:
    """Give the edits of a Correction."""
    return [
        TextEdit(Range(position_at(source, edit.start, codec), position_at(source, edit.end, codec)), edit.text)
        for edit in edits
    ]


def position_at(source: Source, place: int, codec: PositionCodec) -> Position:
    """Give the position of a character of the text, counted from 0, in the units that the client counts in."""
    line = bisect_right(source.line_starts, place) - 1
    start = source.line_starts[line]
    return Position(line, codec.client_num_units(source.text[start:place]))


def range_of(source: Source | None, finding: Finding, codec: PositionCodec) -> Range:
    """Give the range from a finding to the end of its line."""
    if source is None or finding.line > len(source.lines):
        return line_range("", finding.line, codec)
    text = source.lines[finding.line - 1].rstrip()
    start = source.line_starts[finding.line - 1]
    begin = position_at(source, min(offset(source, finding.line, finding.column - 1), start + len(text)), codec)
    return Range(begin, Position(begin.line, codec.client_num_units(text)))


def line_range(text: str, line: int, codec: PositionCodec) -> Range:
    """Give the range of a line, from 1, without the spaces around its `text`."""
    content = text.rstrip()
    begin = len(content) - len(content.lstrip())
    return Range(
        Position(line - 1, codec.client_num_units(content[:begin])),
        Position(line - 1, codec.client_num_units(content)),
    )

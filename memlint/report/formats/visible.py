"""Strings of a Report made fit for one line: what shows nothing, or moves the cursor, is shown as an escape."""

from __future__ import annotations

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Printable characters that show nothing: fillers of Hangul, vowels of Khmer, Braille without a dot."""


def visible(text: str) -> str:
    r"""`text` with an escape, such as `\n` or `\x00`, for each character that shows nothing or cannot be printed."""
    if text.isprintable() and _BLANK.isdisjoint(text):
        return text
    return "".join(
        char if char.isprintable() and char not in _BLANK else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def one_line(text: str) -> str:
    """`text` with one space for each stretch of spaces and line breaks, and the rest visible."""
    return visible(" ".join(text.split()))

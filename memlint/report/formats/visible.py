"""Strings of a Report made fit for one line: what shows nothing, or moves the cursor, is shown as an escape."""

from __future__ import annotations


def visible(text: str) -> str:
    r"""`text` with an escape, such as `\n` or `\x00`, for each character that cannot be printed."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def one_line(text: str) -> str:
    """`text` with one space for each stretch of spaces and line breaks, and the rest visible."""
    return visible(" ".join(text.split()))

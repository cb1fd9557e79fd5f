"""How text is laid out for people: colours, widths, tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

import click

OUTCOME_COLORS = {"fits": "green", "does not fit": "red", "uncertain": "yellow"}
EFFECT_COLORS = {"exact": "green", "numerics": "yellow", "dynamics": "red"}
_ROWS = 8
_HANGING, _HANGING_OF_MARGIN = 2, 4
"""Columns by which the later parts of a line stand further in: of one that is indented, of one at the margin."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class TextStyle:
    """The abilities of the terminal or file, and how much of them is wanted."""

    color: bool = False
    width: int = 100
    """Columns; lines of tables are cut to it."""
    is_terminal: bool = False
    """True if other lines are broken between words, so that the width holds them; what programs read is not."""
    blocks: bool = True
    """True if the terminal can show block characters."""
    verbosity: int = 0
    """-1: verdicts, errors and findings only; 1: every row, and single Buffers."""

    def __call__(self, text: str, color: str | None = None, *, bold: bool = False, dim: bool = False) -> str:
        """`text` in that colour and weight, if there are colours."""
        return click.style(text, fg=color, bold=bold or None, dim=dim or None) if self.color and text else text

    def help(self, hint: str, indent: str = "  ") -> Iterator[str]:
        """The line that says what to do, unless there is nothing to say."""
        if hint:
            yield f"{indent}{self('help', 'cyan', bold=True)}: {hint}"

    def first_rows(self, rows: Sequence[Row], most: int = _ROWS) -> Sequence[Row]:
        """The rows to show; `rest` says how many are left out."""
        return rows if self.verbosity > 0 else rows[:most]

    def rest(self, number: int, of: str = "more") -> Iterator[str]:
        """The line below a table that is cut, if it is."""
        if number:
            yield self(f"    and {number} {of}: see them with -v", dim=True)

    def fitted(self, text: str) -> str:
        """`text` with its lines broken where they are longer than the terminal is wide."""
        lines = (part for line in text.split("\n") for part in _broken(line, self.width))
        return "\n".join(lines) if self.is_terminal else text


def _broken(line: str, width: int) -> Iterator[str]:
    """`line` in parts of at most `width` columns, the later ones further in; words are kept whole."""
    plain = click.unstyle(line)
    margin = len(plain) - len(plain.lstrip(" "))
    indent = margin + _HANGING if margin else _HANGING_OF_MARGIN
    part, columns = "", 0
    for number, word in enumerate(line.split(" ")):
        length = len(click.unstyle(word))
        if number and columns + 1 + length > width and part.strip():
            yield part
            part, columns = " " * indent + word, indent + length
        else:
            part, columns = (f"{part} {word}", columns + 1 + length) if number else (word, length)
    yield part


def table(rows: Sequence[Sequence[str]], alignment: Sequence[str]) -> Iterator[str]:
    """Lines of a table without rules; `alignment` is `left` or `right` for each column."""
    lengths = [[len(click.unstyle(cell)) for cell in row] for row in rows]
    widths = [max(column) for column in zip_longest(*lengths, fillvalue=0)]
    for row, own in zip(rows, lengths, strict=True):
        cells = [
            " " * (width - length) + cell if side == "right" else cell + " " * (width - length)
            for cell, length, width, side in zip(row, own, widths, alignment, strict=False)
        ]
        yield "  ".join([*cells, *row[len(cells) :]]).rstrip()


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, with dots where something was left out."""
    return text if len(text) <= width else text[: max(width - 3, 0)].rstrip() + "..."

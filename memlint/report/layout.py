"""How text is laid out: colours, widths, tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from tabulate import tabulate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROWS = 8


@dataclass(frozen=True, slots=True)
class Look:
    """How text is laid out."""

    color: bool = False
    width: int = 100
    """Columns; lines of tables are cut to it, messages are not."""
    blocks: bool = True
    """Whether the terminal can show block characters."""
    verbosity: int = 0
    """-1: verdicts, errors and findings only; 1: every row, and single Buffers."""


class Paint:
    """Colours where they are wanted, plain text elsewhere."""

    def __init__(self, look: Look) -> None:
        self.look = look

    def __call__(self, text: str, color: str | None = None, *, bold: bool = False, dim: bool = False) -> str:
        """`text` in that colour and weight, if there are colours."""
        return click.style(text, fg=color, bold=bold or None, dim=dim or None) if self.look.color and text else text

    def rows(self, count: int) -> int:
        """How many of `count` rows to show."""
        return count if self.look.verbosity > 0 else min(count, _ROWS)


def table(rows: Sequence[Sequence[str]], alignment: Sequence[str]) -> Iterator[str]:
    """Lines of a table without rules; `alignment` is `left` or `right` for each column."""
    if rows:
        text = tabulate(rows, tablefmt="plain", colalign=alignment, disable_numparse=True, preserve_whitespace=True)
        yield from (line.rstrip() for line in text.splitlines())


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, with dots where something was left out."""
    return text if len(text) <= width else text[: max(width - 3, 0)].rstrip() + "..."

"""Blocks of HTML inside of Markdown.

None has an empty line in it, so that Markdown means nothing there, and every string of a Report stands in a `code`
element, where GitHub and GitLab make no mentions and no links.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from memlint.report.formats.visible import one_line
from memlint.report.layout import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = 100
"""Of a table: GitHub takes 1 MiB for the summary of a step."""
_LONGEST = 500


def table(head: Sequence[str], rows: Sequence[Sequence[str]], most: int = ROWS) -> str:
    """A table of cells that are HTML already, with at most so many rows; empty without any."""
    if not rows:
        return ""
    lines = ["<table>", "<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows[:most]]
    rest = len(rows) - most
    if rest > 0:
        lines.append(f'<tr><td colspan="{len(head)}">and {rest:,} more</td></tr>')
    return "\n".join([*lines, "</table>"])


def folded(summary: str, content: str) -> str:
    """What is shown when the summary is clicked; both are HTML already. Empty without content."""
    return f"<details><summary>{summary}</summary>\n{content}\n</details>" if content else ""


def code(text: str) -> str:
    """A string of the Report, on one line and with nothing in it that means anything."""
    return f"<code>{escape(cut(one_line(text), _LONGEST))}</code>" if text else ""

"""One line for each complaint, `path:line:column: CODE message`, as other linters print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.report.formats.entries import entries
from memlint.report.formats.visible import inert, visible

if TYPE_CHECKING:
    from memlint.report.formats.entries import Entry
    from memlint.report.model import Report


def render_concise(report: Report) -> str:
    """A line for each error, exceeded limit and finding; empty without any."""
    return "".join(inert(f"{_place(entry)}: {entry.code} {entry.message}") + "\n" for entry in entries(report))


def _place(entry: Entry) -> str:
    # GitHub's runner takes a line that begins with two colons for a command.
    path = f"./{entry.path}" if entry.path.lstrip().startswith("::") else entry.path
    numbers = (entry.line, entry.column)
    return ":".join([visible(path), *(str(number) for number in numbers if number is not None)])

"""Workflow commands of GitHub Actions, which show complaints in the changed files of a pull request.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands says what they look like, and the
toolkit of Actions how they are escaped. GitHub shows ten of each kind for a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.report.formats.entries import entries
from memlint.report.formats.visible import visible

if TYPE_CHECKING:
    from memlint.report.formats.entries import Entry
    from memlint.report.model import Report

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice", "note": "notice"}


def render_github(report: Report) -> str:
    """A command for each error, exceeded limit and finding; empty without any."""
    return "".join(_command(entry) + "\n" for entry in entries(report))


def escape_data(text: str) -> str:
    """`text` as what a command says."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """`text` as the value of a property of a command."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _command(entry: Entry) -> str:
    properties = {
        "file": entry.path,
        "line": entry.line,
        "col": entry.column,
        "title": f"{entry.code} ({entry.workload})" if entry.workload else entry.code,
    }
    given = ",".join(
        f"{key}={escape_property(visible(str(value)))}" for key, value in properties.items() if value is not None
    )
    text = escape_data("\n".join(entry.lines))
    return f"::{_COMMANDS[entry.severity]} {given}::{text}"

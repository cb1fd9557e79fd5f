"""Reviewdog's diagnostics: `DiagnosticResult` in https://github.com/reviewdog/reviewdog/tree/master/proto/rdf."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from memlint.report.formats.entries import entries

if TYPE_CHECKING:
    from memlint.report.formats.entries import Entry
    from memlint.report.model import Report

_SEVERITIES = {"error": "ERROR", "warning": "WARNING", "info": "INFO", "note": "INFO"}


def render_rdjson(report: Report) -> str:
    """One result with a diagnostic for each error, exceeded limit and finding."""
    diagnostics = [_diagnostic(entry) for entry in entries(report)]
    return json.dumps({"source": {"name": "memlint"}, "diagnostics": diagnostics}, indent=2) + "\n"


def _diagnostic(entry: Entry) -> dict[str, object]:
    location: dict[str, object] = {"path": entry.path}
    if entry.line is not None:
        column = {"column": entry.column} if entry.column is not None else {}
        location["range"] = {"start": {"line": entry.line, **column}}
    return {
        "message": "\n".join(entry.lines),
        "location": location,
        "severity": _SEVERITIES[entry.severity],
        "code": {"value": entry.code},
    }

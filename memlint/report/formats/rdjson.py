"""Reviewdog's diagnostics: `DiagnosticResult` in https://github.com/reviewdog/reviewdog/tree/master/proto/rdf."""

import json

from memlint.report.formats.problems import Problem, problems
from memlint.report.model import Report

_SEVERITIES = {"error": "ERROR", "warning": "WARNING", "info": "INFO", "note": "INFO"}


def render_rdjson(report: Report) -> str:
    """Return one result with a diagnostic for each error, exceeded limit and finding."""
    diagnostics = [_diagnostic(problem) for problem in problems(report)]
    return json.dumps({"source": {"name": "memlint"}, "diagnostics": diagnostics}, indent=2) + "\n"


def _diagnostic(problem: Problem) -> dict[str, object]:
    location: dict[str, object] = {"path": problem.path}
    if problem.line is not None:
        column = {"column": problem.column} if problem.column is not None else {}
        location["range"] = {"start": {"line": problem.line, **column}}
    return {
        "message": "\n".join(problem.lines),
        "location": location,
        "severity": _SEVERITIES[problem.severity],
        "code": {"value": problem.code},
    }

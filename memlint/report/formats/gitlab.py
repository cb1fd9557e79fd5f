"""GitLab's Code Quality report, whose keys https://docs.gitlab.com/ci/testing/code_quality/ names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from memlint.report.formats.entries import NOT_ANALYSED, entries, fingerprints

if TYPE_CHECKING:
    from memlint.report.formats.entries import Entry
    from memlint.report.model import Report

_SEVERITIES = {"error": "major", "warning": "minor", "info": "info", "note": "info"}


def render_gitlab(report: Report) -> str:
    """An array with an object for each error, exceeded limit and finding."""
    found = entries(report)
    issues = [_issue(*pair) for pair in zip(found, fingerprints(found), strict=True)]
    return json.dumps(issues, indent=2) + "\n"


def _issue(entry: Entry, fingerprint: str) -> dict[str, object]:
    return {
        "description": f"{entry.code}: {entry.message}",  # GitLab does not show check_name
        "check_name": entry.code,
        "fingerprint": fingerprint,
        "severity": "critical" if entry.code == NOT_ANALYSED else _SEVERITIES[entry.severity],
        "location": {"path": entry.path.removeprefix("./"), "lines": {"begin": entry.line or 1}},
    }

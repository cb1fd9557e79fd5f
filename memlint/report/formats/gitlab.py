"""GitLab's Code Quality report, as described by https://docs.gitlab.com/ci/testing/code_quality/."""

import json

from memlint.report.formats.problems import NOT_ANALYSED, fingerprints, problems
from memlint.report.model import Report

_SEVERITIES = {"error": "major", "warning": "minor", "info": "info", "note": "info"}


def render_gitlab(report: Report) -> str:
    """Return an array with an object for each error, exceeded limit and finding."""
    every = problems(report)
    issues = [
        {
            "description": f"{each.code}: {each.message}",  # GitLab does not show check_name
            "check_name": each.code,
            "fingerprint": fingerprint,
            "severity": "critical" if each.code == NOT_ANALYSED else _SEVERITIES[each.severity],
            "location": {"path": each.path.removeprefix("./"), "lines": {"begin": each.line or 1}},
        }
        for each, fingerprint in zip(every, fingerprints(every), strict=True)
    ]
    return json.dumps(issues, indent=2) + "\n"

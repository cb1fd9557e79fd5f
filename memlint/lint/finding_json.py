"""Findings of source rules as JSON, for the cache and between processes.

The path of the file that was read is not written, because the reader knows it, and a cache may be moved.
"""

from __future__ import annotations

from typing import Any

from memlint.lint.rule import Applicability, Confidence, Correction, Edit, Finding, Severity


def to_json(finding: Finding, path: str) -> dict[str, Any]:
    """Give the fields of a Finding in the file at `path` as JSON has them."""
    correction = finding.correction
    return {
        "code": finding.code,
        "path": None if finding.path == path else finding.path,
        "line": finding.line,
        "column": finding.column,
        "message": finding.message,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "nbytes": finding.nbytes,
        "peak_change": finding.peak_change,
        "fix": finding.fix,
        "subject": finding.subject,
        "correction": correction
        and {
            "applicability": correction.applicability.value,
            "edits": [[edit.start, edit.end, edit.text] for edit in correction.edits],
        },
    }


def from_json(fields: dict[str, Any], path: str) -> Finding:
    """Make the Finding in the file at `path` again; KeyError, TypeError or ValueError if `fields` are not its."""
    correction = fields["correction"]
    return Finding(
        code=str(fields["code"]),
        path=path if fields["path"] is None else str(fields["path"]),
        line=int(fields["line"]),
        column=int(fields["column"]),
        message=str(fields["message"]),
        severity=Severity(fields["severity"]),
        confidence=Confidence(fields["confidence"]),
        nbytes=_number(fields["nbytes"]),
        peak_change=_number(fields["peak_change"]),
        fix=str(fields["fix"]),
        subject=str(fields["subject"]),
        correction=correction
        and Correction(
            tuple(Edit(int(start), int(end), str(text)) for start, end, text in correction["edits"]),
            Applicability(correction["applicability"]),
        ),
    )


def _number(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TypeError(f"{value!r} is no number of bytes")

"""SARIF 2.1.0, for code scanning.

The properties are those that GitHub reads, see
https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from memlint.lint.pages import page
from memlint.report.formats.entries import NOT_ANALYSED, OVER_LIMIT, entries, fingerprints
from memlint.report.formats.visible import one_line
from memlint.report.layout import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memlint.lint.rule import Rule
    from memlint.report.formats.entries import Entry
    from memlint.report.model import Confidence, Report, Severity

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_HOME = "https://pypi.org/project/torch-memlint/"
_ROOT = "%SRCROOT%"
_LEVELS: Mapping[Severity, str] = {"error": "error", "warning": "warning", "info": "note", "note": "note"}
_PROBLEMS = {"error": "error", "warning": "warning", "note": "recommendation"}
_PRECISIONS: Mapping[Confidence, str] = {
    "exact-retrace": "very-high",
    "exact-lifetime": "very-high",
    "modelled": "high",
    "analytic": "high",
    "heuristic": "medium",
}
_RANKS = ("medium", "high", "very-high")
_TAGS = ["memory", "performance", "pytorch"]
_LONGEST = 1024  # characters GitHub takes as a description
_OVER_LIMIT = "A step takes more memory than the GPU has, or than its budget allows."


def render_sarif(report: Report, rules: Iterable[Rule] = ()) -> str:
    """One run. `rules` explain the codes of the findings; a code without a rule is explained by its messages."""
    found = [entry for entry in entries(report) if entry.code != NOT_ANALYSED]
    known = {rule.code: rule for rule in rules}
    codes = sorted({entry.code for entry in found})
    name, _, version = report.tool.partition(" ")
    driver = {
        "name": name,
        **({"version": version} if version else {}),
        "informationUri": _HOME,
        "rules": [_rule(code, known.get(code), [e for e in found if e.code == code]) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The directory in which memlint ran."}}},
        "invocations": [_invocation(report)],
        "results": [
            _result(entry, codes.index(entry.code), fingerprint)
            for entry, fingerprint in zip(found, fingerprints(found), strict=True)
        ],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str, rule: Rule | None, found: list[Entry]) -> dict[str, Any]:
    if rule is not None:
        text, level = page(rule), _LEVELS[rule.severity.value]
        summary, described = rule.summary, _section(text, "What it does") or rule.summary
    else:
        level = _LEVELS[found[0].severity]
        summary = text = described = _OVER_LIMIT if code == OVER_LIMIT else found[0].message
    said = [_PRECISIONS[entry.confidence] for entry in found if entry.confidence is not None]
    address = re.search(r"https?://\S+", _section(text, "References"))
    return {
        "id": code,
        **({"name": rule.name} if rule is not None else {}),
        "shortDescription": {"text": cut(one_line(summary), _LONGEST)},
        "fullDescription": {"text": cut(one_line(described), _LONGEST)},
        "help": {"text": text, "markdown": text},
        **({"helpUri": address[0]} if address else {}),
        "defaultConfiguration": {"level": level},
        "properties": {
            "tags": _TAGS,
            "precision": min(said, key=_RANKS.index, default="very-high"),
            "problem.severity": _PROBLEMS[level],
        },
    }


def _section(text: str, heading: str) -> str:
    """What stands under a heading of a rule's page."""
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def _result(entry: Entry, index: int, fingerprint: str) -> dict[str, Any]:
    properties = {
        "confidence": entry.confidence,
        "nbytes": entry.nbytes,
        "peakChange": entry.peak_change,
        "workload": entry.workload,
    }
    return {
        "ruleId": entry.code,
        "ruleIndex": index,
        "level": _LEVELS[entry.severity],
        "message": {"text": _plain("\n".join(entry.lines))},
        "locations": [_location(entry.path, entry.line or 1, entry.column)],
        "partialFingerprints": {"memlint/v1": fingerprint},
        "properties": {key: value for key, value in properties.items() if value is not None},
    }


def _location(path: str, line: int | None = None, column: int | None = None) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": _artifact(path)}
    if line is not None:
        place["region"] = {"startLine": line, **({"startColumn": column} if column is not None else {})}
    return {"physicalLocation": place}


def _artifact(path: str) -> dict[str, str]:
    return {"uri": f"file://{quote(path)}"} if path.startswith("/") else {"uri": quote(path), "uriBaseId": _ROOT}


def _invocation(report: Report) -> dict[str, Any]:
    failed = [entry for entry in entries(report) if entry.code == NOT_ANALYSED]
    notifications = [_notification(NOT_ANALYSED, "error", "\n".join(entry.lines), entry.path) for entry in failed]
    for skipped in report.skipped:
        text = _said(skipped.name, skipped.reason, skipped.hint)
        notifications.append(_notification("skipped", "note", text, skipped.path))
    return {"executionSuccessful": not failed, "toolExecutionNotifications": notifications}


def _notification(code: str, level: str, text: str, path: str | None) -> dict[str, Any]:
    return {
        "descriptor": {"id": code},
        "level": level,
        "message": {"text": _plain(text)},
        **({"locations": [_location(path)]} if path else {}),
    }


def _said(name: str, reason: str, hint: str) -> str:
    text = one_line(f"{name}: {reason}" if name else reason)
    return f"{text}\nhelp: {one_line(hint)}" if hint else text


def _plain(text: str) -> str:
    """`text` in which nothing is a link: SARIF reads `[text](address)` in plain messages too."""
    return text.replace("](", "] (")

"""SARIF 2.1.0, for code scanning.

The properties are those that GitHub reads:
https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from memlint.base.version import HOME
from memlint.lint.pages import page
from memlint.lint.registry import sections
from memlint.lint.rule import Rule
from memlint.lint.severity import Confidence, Severity
from memlint.report.escaping import one_line
from memlint.report.formats.problems import NOT_ANALYSED, OVER_LIMIT, Problem, fingerprints, problems
from memlint.report.model import Report
from memlint.report.text_style import cut

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "%SRCROOT%"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note", Severity.NOTE: "note"}
_PROBLEMS = {"error": "error", "warning": "warning", "note": "recommendation"}
_PRECISIONS = {
    Confidence.EXACT_RETRACE: "very-high",
    Confidence.EXACT_LIFETIME: "very-high",
    Confidence.MODELLED: "high",
    Confidence.ANALYTIC: "high",
    Confidence.HEURISTIC: "medium",
}
_RANKS = ("medium", "high", "very-high")
_TAGS = ["memory", "performance", "pytorch"]
_LONGEST = 1024  # characters that GitHub accepts in a description
_OVER_LIMIT = "A step takes more memory than the GPU has, or than its budget allows."


def render_sarif(report: Report, rules: Iterable[Rule] = ()) -> str:
    """Return one run. `rules` explain the codes of the findings; the messages explain a code without a rule."""
    every = problems(report)
    results = [each for each in every if each.code != NOT_ANALYSED]
    failed = [each for each in every if each.code == NOT_ANALYSED]
    notifications = [_notification(NOT_ANALYSED, "error", "\n".join(each.lines), each.path) for each in failed]
    for skipped in report.skipped:
        text = one_line(f"{skipped.name}: {skipped.reason}" if skipped.name else skipped.reason)
        hint = f"\nhelp: {one_line(skipped.hint)}" if skipped.hint else ""
        notifications.append(_notification("skipped", "note", text + hint, skipped.path))
    rule_of = {rule.code: rule for rule in rules}
    codes = sorted({each.code for each in results})
    name, _, version = report.tool.partition(" ")
    driver = {
        "name": name,
        **({"version": version} if version else {}),
        "informationUri": HOME,
        "rules": [_rule(code, rule_of.get(code), [each for each in results if each.code == code]) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The directory in which memlint ran."}}},
        "invocations": [{"executionSuccessful": not failed, "toolExecutionNotifications": notifications}],
        "results": [
            _result(each, codes.index(each.code), fingerprint)
            for each, fingerprint in zip(results, fingerprints(results), strict=True)
        ],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str, rule: Rule | None, results: list[Problem]) -> dict[str, Any]:
    if rule is not None:
        text, level, chapters = page(rule), _LEVELS[rule.severity], sections(type(rule))
        summary = rule.summary
    else:
        level, chapters = _LEVELS[results[0].severity], {}
        summary = text = _OVER_LIMIT if code == OVER_LIMIT else results[0].message
    precisions = [_PRECISIONS[each.confidence] for each in results if each.confidence is not None]
    address = re.search(r"https?://\S+", chapters.get("References", ""))
    return {
        "id": code,
        **({"name": rule.name} if rule is not None else {}),
        "shortDescription": {"text": cut(one_line(summary), _LONGEST)},
        "fullDescription": {"text": cut(one_line(chapters.get("What it does") or summary), _LONGEST)},
        "help": {"text": text, "markdown": text},
        **({"helpUri": address[0]} if address else {}),
        "defaultConfiguration": {"level": level},
        "properties": {
            "tags": _TAGS,
            "precision": min(precisions, key=_RANKS.index, default="very-high"),
            "problem.severity": _PROBLEMS[level],
        },
    }


def _result(problem: Problem, index: int, fingerprint: str) -> dict[str, Any]:
    properties = {
        "confidence": problem.confidence,
        "nbytes": problem.nbytes,
        "peakChange": problem.peak_change,
        "workload": problem.workload,
    }
    return {
        "ruleId": problem.code,
        "ruleIndex": index,
        "level": _LEVELS[problem.severity],
        "message": {"text": _plain("\n".join(problem.lines))},
        "locations": [_location(problem.path, problem.line or 1, problem.column)],
        "partialFingerprints": {"memlint/v1": fingerprint},
        "properties": {key: value for key, value in properties.items() if value is not None},
    }


def _location(path: str, line: int | None = None, column: int | None = None) -> dict[str, Any]:
    base = {"uri": f"file://{quote(path)}"} if path.startswith("/") else {"uri": quote(path), "uriBaseId": _ROOT}
    place: dict[str, Any] = {"artifactLocation": base}
    if line is not None:
        place["region"] = {"startLine": line, **({"startColumn": column} if column is not None else {})}
    return {"physicalLocation": place}


def _notification(code: str, level: str, text: str, path: str | None) -> dict[str, Any]:
    return {
        "descriptor": {"id": code},
        "level": level,
        "message": {"text": _plain(text)},
        **({"locations": [_location(path)]} if path else {}),
    }


def _plain(text: str) -> str:
    """Return `text` without links: SARIF reads `[text](address)` in plain messages too."""
    return text.replace("](", "] (")

"""What a Report has to complain about, as one list: errors, limits that are exceeded, findings."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlint.base.units import format_nbytes
from memlint.report.finding_workloads import owners
from memlint.report.formats.visible import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.report.model import Confidence, Error, Finding, Report, Severity, Verdict, Workload

NOT_ANALYSED = "not-analysed"
OVER_LIMIT = "over-limit"
_OVER_BUDGET = "MEM010"
"""The rule that says the same of the budget, or without one of the GPU, and may not have been selected."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:\s?[KMGT]?i?B\b)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One complaint and its place."""

    code: str
    """Of the rule, or NOT_ANALYSED or OVER_LIMIT."""
    path: str
    """The target's where there is no other, and then without a line."""
    line: int | None = None
    column: int | None = None
    message: str
    """Without line breaks."""
    severity: Severity
    fix: str = ""
    workload: str | None = None
    confidence: Confidence | None = None
    nbytes: int | None = None
    peak_change: int | None = None
    traceback: tuple[str, ...] = ()

    @property
    def saving(self) -> str:
        """What the fix saves, if anything."""
        if self.peak_change is None or self.peak_change >= 0:
            return ""
        return f"saves {format_nbytes(-self.peak_change)} of the peak ({self.confidence})"

    @property
    def lines(self) -> tuple[str, ...]:
        """The message, what the fix saves, and the fix."""
        parts = (self.message, self.saving, f"help: {self.fix}" if self.fix else "")
        return tuple(part for part in parts if part)


def entries(report: Report) -> list[Entry]:
    """Errors and exceeded limits in the order of the workloads, then the findings in theirs."""
    found = list(zip(report.findings, owners(report), strict=True))
    told = {owner for finding, owner in found if finding.code == _OVER_BUDGET}
    files = [target_file(workload) for workload in report.workloads]
    return [
        *(entry for number, each in enumerate(report.workloads) for entry in _of_workload(each, number in told)),
        *(entry_of(finding, "" if owner is None else files[owner]) for finding, owner in found),
    ]


def _of_workload(workload: Workload, told: bool) -> Iterator[Entry]:
    """The error of a Workload, or the limits that it exceeds; `told`: the one that counts has a finding."""
    if workload.error is not None:
        yield failed(workload, workload.error)
    counts = workload.budget or workload.verdict
    for verdict in (workload.verdict, workload.budget):
        if verdict is not None and verdict.outcome == "does not fit" and not (told and verdict is counts):
            yield exceeded(workload, verdict)


def failed(workload: Workload, error: Error) -> Entry:
    """Why a Workload could not be analysed."""
    return Entry(
        code=NOT_ANALYSED,
        path=target_file(workload),
        message=one_line(error.message),
        severity="error",
        fix=one_line(error.hint),
        workload=workload.name,
        traceback=tuple(map(one_line, error.traceback)),
    )


def exceeded(workload: Workload, verdict: Verdict) -> Entry:
    """What a Workload takes more than it may, on the line of its peak."""
    estimate = workload.estimate
    message = f"{workload.name} exceeds {verdict.limit_name} ({format_nbytes(verdict.limit)})"
    path, line = None, None
    if estimate is not None:
        path, line = estimate.path, estimate.line
        message += f": its {verdict.measure} peak is {format_nbytes(getattr(estimate.peak, verdict.measure).estimate)}"
    return Entry(
        code=OVER_LIMIT,
        path=path or target_file(workload),
        line=line if path else None,
        message=one_line(message),
        severity=verdict.level,
        workload=workload.name,
    )


def entry_of(finding: Finding, file: str) -> Entry:
    """A finding; `file` is its place if it has no path, as in models made from an installed package alone."""
    return Entry(
        code=one_line(finding.code),
        path=finding.path or file or finding.workload or ".",
        line=finding.line if finding.path else None,
        column=finding.column if finding.path else None,
        message=one_line(finding.message),
        severity=finding.severity,
        fix=one_line(finding.fix),
        workload=finding.workload,
        confidence=finding.confidence,
        nbytes=finding.nbytes,
        peak_change=finding.peak_change,
    )


def target_file(workload: Workload) -> str:
    """The file in `path.py::Name`."""
    return workload.target.partition("::")[0] or workload.name


def without_numbers(message: str) -> str:
    """What stays of a message when sizes and counts in it change."""
    return _NUMBER.sub("", message)


def fingerprints(found: list[Entry]) -> list[str]:
    """One for each entry, unlike all others; none changes because lines move or sizes change.

    Entries that differ in nothing else are counted in their order.
    """
    seen: Counter[str] = Counter()
    made = []
    for entry in found:
        what = "\0".join((entry.code, entry.path, entry.workload or "", without_numbers(entry.message)))
        seen[what] += 1
        made.append(hashlib.sha256(f"{what}\0{seen[what]}".encode()).hexdigest()[:32])
    return made

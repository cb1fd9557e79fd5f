"""What a Report has to complain about, as one list: errors, limits that are exceeded, findings."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from memlint.base.units import Measure, format_nbytes
from memlint.report.escaping import one_line
from memlint.report.model import Confidence, Error, Finding, Report, Severity, Verdict, Workload
from memlint.report.phrases import beside, of_peak, saving
from memlint.report.workloads import workload_positions

NOT_ANALYSED = "not-analysed"
OVER_LIMIT = "over-limit"
_OVER_BUDGET = "MEM010"
"""The rule that says the same of the budget, or without one of the GPU, and may not have been selected."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:\s?[KMGT]?i?B\b)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
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
    measure: Measure = "requested"
    traceback: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """`path:line:column`, as far as that is known."""
        return ":".join(str(part) for part in (self.path, self.line, self.column) if part is not None)

    @property
    def advice(self) -> tuple[str, ...]:
        """What the fix saves, and the fix."""
        saved = saving(self.peak_change)
        saves = f"saves {saved} {of_peak(self.measure)} ({self.confidence})" if saved else ""
        parts = (saves, self.fix and f"help: {self.fix}")
        return tuple(filter(None, parts))

    @property
    def lines(self) -> tuple[str, ...]:
        """The message, what the fix saves, and the fix."""
        return tuple(filter(None, (self.message, *self.advice)))


def problems(report: Report) -> list[Problem]:
    """Errors and exceeded limits in the order of the workloads, then the findings in theirs."""
    findings = list(zip(report.findings, workload_positions(report), strict=True))
    over_budget = {position for finding, position in findings if finding.code == _OVER_BUDGET}
    files = [target_file(workload) for workload in report.workloads]
    return [
        *(each for n, workload in enumerate(report.workloads) for each in _of_workload(workload, n in over_budget)),
        *(problem_of(finding, "" if position is None else files[position]) for finding, position in findings),
    ]


def _of_workload(workload: Workload, has_finding: bool) -> Iterator[Problem]:
    """The error of a Workload, or the limits that it exceeds, but for the one that has a finding already."""
    if workload.error is not None:
        yield failed(workload, workload.error)
    for verdict in workload.verdicts:
        if verdict.outcome == "does not fit" and not (has_finding and verdict is workload.verdicts[-1]):
            yield exceeded(workload, verdict)


def failed(workload: Workload, error: Error) -> Problem:
    """Why a Workload could not be analysed."""
    return Problem(
        code=NOT_ANALYSED,
        path=target_file(workload),
        message=one_line(error.message),
        severity="error",
        fix=one_line(error.hint),
        workload=workload.name,
        traceback=tuple(map(one_line, error.traceback)),
    )


def exceeded(workload: Workload, verdict: Verdict) -> Problem:
    """What a Workload takes more than it may, on the line of its peak."""
    estimate = workload.estimate
    message = f"{workload.name} exceeds {verdict.limit_name} ({format_nbytes(verdict.limit)})"
    if estimate is not None:
        message += f": its {verdict.measure} peak is {format_nbytes(estimate.peak[verdict.measure].estimate)}"
    path = estimate.path if estimate is not None else None
    return Problem(
        code=OVER_LIMIT,
        path=path or target_file(workload),
        line=estimate.line if estimate is not None and path else None,
        message=one_line(message + beside(estimate.library if estimate is not None else None)),
        severity=verdict.level,
        workload=workload.name,
    )


def problem_of(finding: Finding, file: str) -> Problem:
    """A finding; `file` is its place if it has no path, as in models made from an installed package alone."""
    place = ("path", "line", "column") if finding.path else ()
    of_finding = {*place, "severity", "workload", "confidence", "nbytes", "peak_change", "measure"}
    fields = finding.model_dump(include=of_finding)
    texts = {"code": finding.code, "message": finding.message + beside(finding.library), "fix": finding.fix}
    texts = {name: one_line(text) for name, text in texts.items()}
    return Problem(**{"path": file or finding.workload or ".", **fields, **texts})


def target_file(workload: Workload) -> str:
    """The file of the target, or what stands for it."""
    return workload.file or workload.name


def without_numbers(message: str) -> str:
    """What stays of a message when sizes and counts in it change."""
    return _NUMBER.sub("", message)


def fingerprints(problems: list[Problem]) -> list[str]:
    """One for each problem, unlike all others; none changes because lines move or sizes change.

    Problems that differ in nothing else are counted in their order.
    """
    counts: Counter[str] = Counter()
    digests = []
    for each in problems:
        text = "\0".join((each.code, each.path, each.workload or "", without_numbers(each.message)))
        counts[text] += 1
        digests.append(hashlib.sha256(f"{text}\0{counts[text]}".encode()).hexdigest()[:32])
    return digests

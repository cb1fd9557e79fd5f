"""The problems of a Report as one list: errors, exceeded limits, findings."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from memlint.base.units import Measure, format_nbytes
from memlint.lint.severity import Confidence, Severity
from memlint.report.escaping import one_line
from memlint.report.model import Error, Finding, Report, Script, Verdict, Workload
from memlint.report.phrases import beside, of_peak, own_step_text, saving
from memlint.report.workloads import workload_positions

NOT_ANALYSED = "not-analysed"
OVER_LIMIT = "over-limit"
OWN_STEP = "own-step"
_OVER_BUDGET = "MEM010"
"""The rule that reports the same for the budget, or without one for the GPU, and may not be selected."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:\s?[KMGT]?i?B\b)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem and its place."""

    code: str
    """Code of the rule, or NOT_ANALYSED, OVER_LIMIT or OWN_STEP."""
    path: str
    """Path of the finding, or else of the target, which has no line."""
    line: int | None = None
    column: int | None = None
    message: str
    """The message, without line breaks."""
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
        """The place as far as known: `path:line:column`."""
        return ":".join(str(part) for part in (self.path, self.line, self.column) if part is not None)

    @property
    def advice(self) -> tuple[str, ...]:
        """The saving of the fix, and the fix."""
        saved = saving(self.peak_change)
        saves = f"saves {saved} {of_peak(self.measure)} ({self.confidence})" if saved else ""
        parts = (saves, self.fix and f"help: {self.fix}")
        return tuple(filter(None, parts))

    @property
    def lines(self) -> tuple[str, ...]:
        """The message, the saving of the fix, and the fix."""
        return tuple(filter(None, (self.message, *self.advice)))


def problems(report: Report) -> list[Problem]:
    """Return errors, notes and exceeded limits in the order of the workloads, then the findings in theirs."""
    findings = list(zip(report.findings, workload_positions(report), strict=True))
    over_budget = {position for finding, position in findings if finding.code == _OVER_BUDGET}
    files = [target_file(workload) for workload in report.workloads]
    return [
        *(each for n, workload in enumerate(report.workloads) for each in _of_workload(workload, n in over_budget)),
        *(problem_of(finding, "" if position is None else files[position]) for finding, position in findings),
    ]


def _of_workload(workload: Workload, has_finding: bool) -> Iterator[Problem]:
    """Yield the error of a Workload, the note on its step, and the exceeded limits that no finding reports already."""
    if workload.error is not None:
        yield failed(workload, workload.error)
    if workload.script is not None and workload.script.stop is not None:
        yield own_step(workload, workload.script, workload.script.stop)
    for verdict in workload.verdicts:
        if verdict.outcome == "does not fit" and not (has_finding and verdict is workload.verdicts[-1]):
            yield exceeded(workload, verdict)


def failed(workload: Workload, error: Error) -> Problem:
    """Make the Problem of a Workload that could not be analysed."""
    return Problem(
        code=NOT_ANALYSED,
        path=target_file(workload),
        message=one_line(error.message),
        severity=Severity.ERROR,
        fix=one_line(error.hint),
        workload=workload.name,
        traceback=tuple(map(one_line, error.traceback)),
    )


def own_step(workload: Workload, script: Script, stop: Error) -> Problem:
    """Make the note about a script whose step is memlint's own."""
    return Problem(
        code=OWN_STEP,
        path=target_file(workload),
        message=one_line(own_step_text(script)),
        severity=Severity.NOTE,
        fix=one_line(stop.hint),
        workload=workload.name,
        traceback=tuple(map(one_line, stop.traceback)),
    )


def exceeded(workload: Workload, verdict: Verdict) -> Problem:
    """Make the Problem of an exceeded limit, on the line of the peak."""
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
        severity=Severity(verdict.level),
        workload=workload.name,
    )


def problem_of(finding: Finding, file: str) -> Problem:
    """Make the Problem of a finding; `file` is its place if it has no path, as in a model of an installed package."""
    place = ("path", "line", "column") if finding.path else ()
    of_finding = {*place, "severity", "workload", "confidence", "nbytes", "peak_change", "measure"}
    fields = finding.model_dump(include=of_finding)
    texts = {"code": finding.code, "message": finding.message + beside(finding.library), "fix": finding.fix}
    texts = {name: one_line(text) for name, text in texts.items()}
    return Problem(**{"path": file or finding.workload or ".", **fields, **texts})


def target_file(workload: Workload) -> str:
    """Return the file of the target, or its name if it has none."""
    return workload.file or workload.name


def without_numbers(message: str) -> str:
    """Return the message without its sizes and counts, which may change."""
    return _NUMBER.sub("", message)


def fingerprints(problems: list[Problem]) -> list[str]:
    """Return a unique fingerprint for each problem; moved lines and changed sizes do not change it.

    Problems that differ in nothing else are numbered in their order.
    """
    counts: Counter[str] = Counter()
    digests = []
    for each in problems:
        text = "\0".join((each.code, each.path, each.workload or "", without_numbers(each.message)))
        counts[text] += 1
        digests.append(hashlib.sha256(f"{text}\0{counts[text]}".encode()).hexdigest()[:32])
    return digests

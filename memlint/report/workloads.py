"""The Workloads of Reports: which findings are whose, several Reports as one, and a Report of one Workload."""

import difflib
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, TypeVar

from memlint.base.errors import UsageError
from memlint.report.model import Finding, Report, Settings
from memlint.report.phrases import listed

F = TypeVar("F", bound=Finding)


class FindingsByWorkload(NamedTuple):
    """The findings of a Report, each once and in their order."""

    of_workloads: list[list[Finding]]
    """For each Workload its own."""
    of_source: list[Finding]
    """The findings of no Workload in the Report."""


def findings_by_workload(report: Report) -> FindingsByWorkload:
    """Sort the findings by Workload."""
    findings = FindingsByWorkload([[] for _workload in report.workloads], [])
    for finding, position in zip(report.findings, workload_positions(report), strict=True):
        (findings.of_source if position is None else findings.of_workloads[position]).append(finding)
    return findings


def workload_positions(report: Report) -> list[int | None]:
    """For each finding where its Workload stands: as the finding says, or else the first Workload of its name."""
    names = [workload.name for workload in report.workloads]

    def position(finding: Finding) -> int | None:
        number = finding.workload_position
        if number is not None and number < len(names) and names[number] == finding.workload:
            return number
        return firsts.get(finding.workload)

    firsts: dict[str | None, int] = {name: number for number, name in reversed(list(enumerate(names)))}
    return [position(finding) for finding in report.findings]


def moved(finding: F, by: int) -> F:
    """The finding after its Workload has come to stand so many places further on."""
    if finding.workload_position is None:
        return finding
    return finding.model_copy(update={"workload_position": finding.workload_position + by})


def merged(reports: Sequence[Report]) -> Report:
    """One Report of everything in `reports`, in their order, as when several machines analysed the targets.

    There is at least one. What several of them say alike about code is said once. Settings that differ are left out,
    and so is what counts findings of a single run: its baseline and its statistics.
    """
    if len(reports) == 1:
        return reports[0]
    settings = reports[0].settings
    firsts = accumulate((len(report.workloads) for report in reports), initial=0)
    findings = (moved(finding, by) for by, report in zip(firsts, reports, strict=False) for finding in report.findings)
    return Report(
        tool=listed(*dict.fromkeys(report.tool for report in reports)) or "memlint",
        torch=listed(*dict.fromkeys(report.torch for report in reports)) or None,
        settings=settings if all(report.settings == settings for report in reports) else Settings(),
        workloads=[workload for report in reports for workload in report.workloads],
        findings=list(dict.fromkeys(findings)),
        skipped=list(dict.fromkeys(skipped for report in reports for skipped in report.skipped)),
    )


def of_workload(report: Report, name: str) -> Report:
    """The Report without other Workloads than those called `name`, and without their findings.

    Raises UsageError if there is none.
    """
    numbers = [number for number, each in enumerate(report.workloads) if name in (each.name, each.target)]
    if not numbers:
        names = list(dict.fromkeys(workload.name for workload in report.workloads))
        close = difflib.get_close_matches(name, names, 1)
        known = f"Did you mean {close[0]}?" if close else f"There is {', '.join(names)}." if names else "There is none."
        raise UsageError(f"there is no workload {name}", known)
    findings = findings_by_workload(report)
    kept = [moved(each, new - old) for new, old in enumerate(numbers) for each in findings.of_workloads[old]]
    workloads = [report.workloads[number] for number in numbers]
    return report.model_copy(update={"workloads": workloads, "findings": [*findings.of_source, *kept]})

"""Which findings of a Report belong to which of its Workloads, of which several may have one name."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from memlint.report.model import Finding, Report

F = TypeVar("F", bound=Finding)


class FindingsByWorkload(NamedTuple):
    """The findings of a Report, each once and in their order."""

    of_workloads: list[list[Finding]]
    """For each Workload its own."""
    of_source: list[Finding]
    """Those of no Workload in the Report."""


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

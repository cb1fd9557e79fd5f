"""Which findings of a Report belong to which of its Workloads, of which several may have one name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from memlint.report.model import Finding, Report


class Belonging(NamedTuple):
    """The findings of a Report, each once and in their order."""

    of_workloads: list[list[Finding]]
    """For each Workload its own."""
    of_source: list[Finding]
    """Those of no Workload in the Report."""


def belonging(report: Report) -> Belonging:
    """The findings by Workload."""
    found = Belonging([[] for _workload in report.workloads], [])
    for finding, position in zip(report.findings, owners(report), strict=True):
        (found.of_source if position is None else found.of_workloads[position]).append(finding)
    return found


def owners(report: Report) -> list[int | None]:
    """For each finding the position of its Workload: what the finding says, or else the first one of its name."""
    firsts: dict[str | None, int] = {}
    for position, workload in enumerate(report.workloads):
        firsts.setdefault(workload.name, position)
    return [
        finding.workload_position if _is_right(finding, report) else firsts.get(finding.workload)
        for finding in report.findings
    ]


def _is_right(finding: Finding, report: Report) -> bool:
    position = finding.workload_position
    return (
        position is not None
        and position < len(report.workloads)
        and report.workloads[position].name == finding.workload
    )


def moved(finding: Finding, by: int) -> Finding:
    """The finding after its Workload has come to stand so many places further on."""
    if finding.workload_position is None:
        return finding
    return finding.model_copy(update={"workload_position": finding.workload_position + by})

"""What a Report could not load: which Workloads are in it only a Report that could load it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.lint.diagnostics import UnreadableFile
from memlint.report.from_rules import failed_target
from memlint.report.model import Error
from memlint.workloads.find.target import SEPARATOR

if TYPE_CHECKING:
    from memlint.report.model import Finding, Report, Workload


def failures(report: Report) -> list[Workload]:
    """The targets and files that could not be loaded, each as a Workload of their name with the error."""
    unreadable = (finding for finding in report.findings if is_unreadable(finding))
    return [
        *(workload for workload in report.workloads if is_target(workload)),
        *(failed_target(each.path, Error(kind="target", message=each.message)) for each in unreadable),
    ]


def is_target(workload: Workload) -> bool:
    """Whether it is no Workload but stands in a Report for a target that could not be loaded."""
    return workload.error is not None and workload.name == workload.target


def is_unreadable(finding: Finding) -> bool:
    """Whether it says that its file could not be read: directories are searched for Workloads without such files."""
    return finding.code == UnreadableFile.code


def is_in(workload: Workload, failure: Workload) -> bool:
    """Whether the target that could not be loaded is that of the Workload, or its file."""
    return failure.target in (workload.target, file_of(workload))


def file_of(workload: Workload) -> str:
    """The file of its target."""
    return workload.target.partition(SEPARATOR)[0]

"""What a Report could not load: which Workloads are in it only a Report that could load it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.lint.diagnostics import UnreadableFile
from memlint.report.from_rules import failed_target
from memlint.report.model import Error

if TYPE_CHECKING:
    from memlint.report.model import Finding, Report, Workload


def failures(report: Report) -> list[Workload]:
    """The targets and files that could not be loaded, each as a Workload of their name with the error."""
    targets = [workload for workload in report.workloads if is_target(workload)]
    files = (finding for finding in report.findings if is_unreadable(finding))
    return [*targets, *(failed_target(each.path, Error(kind="target", message=each.message)) for each in files)]


def is_target(workload: Workload) -> bool:
    """Whether it is no Workload but stands in a Report for a target that could not be loaded."""
    return workload.error is not None and workload.name == workload.target


def is_unreadable(finding: Finding) -> bool:
    """Whether it says that its file could not be read: directories are searched for Workloads without such files."""
    return finding.code == UnreadableFile.code


def is_in(workload: Workload, failure: Workload) -> bool:
    """Whether the target that could not be loaded is that of the Workload, or its file."""
    return failure.target in (workload.target, workload.file)

"""From what rules find and what goes wrong to the records of the Report."""

from collections.abc import Iterable

from memlint.base import errors
from memlint.base.errors import MemlintError
from memlint.lint import rule
from memlint.memory.records import Frame
from memlint.report.model import Error, ErrorKind, Finding, Place, Workload

_KINDS: dict[type[MemlintError], ErrorKind] = {
    errors.UsageError: "usage",
    errors.TargetError: "target",
    errors.WorkloadError: "workload",
    errors.TraceError: "trace",
    errors.WorkerError: "worker",
    errors.RuleError: "rule",
}

_ALIKE = ("code", "path", "line", "column", "message", "nbytes", "peak_change", "measure", "fix", "subject")
"""The fields that have one name in a rule's finding and in its record."""


def library_of(frame: Frame) -> Place | None:
    """The line of an installed package; None where the frame is a line of the project."""
    if frame.caller is None:
        return None
    return Place(path=frame.path, line=frame.line, function=frame.function)


def finding_of(finding: rule.Finding, workload: str | None = None, position: int | None = None) -> Finding:
    """Make the record of a rule's finding, in the Workload of this name at `position` if it was found in one."""
    alike = {name: getattr(finding, name) for name in _ALIKE}
    return Finding(
        **alike,
        severity=finding.severity,
        confidence=finding.confidence,
        workload=workload,
        workload_position=position,
        library=library_of(finding.library) if finding.library else None,
    )


def error_of(error: MemlintError, traceback: Iterable[str] = ()) -> Error:
    """The error with the user's lines that it went through."""
    kind: ErrorKind = next((kind for type_, kind in _KINDS.items() if isinstance(error, type_)), "internal")
    return Error(kind=kind, message=error.message, hint=error.hint, traceback=list(traceback))


def failed_target(target: str, error: Error) -> Workload:
    """Make the entry of the Report for a target of which no Workload could be loaded."""
    return Workload(name=target, target=target, error=error)

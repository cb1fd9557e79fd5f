"""The exit status of `memlint check` and `memlint run`; other commands' results carry a `status` of their own."""

from memlint.report.model import Report


def exit_status(report: Report) -> int:
    """0: clean; 1: a warning, an error or a limit exceeded; 2: a target that could not be analysed."""
    if any(workload.error is not None for workload in report.workloads):
        return 2
    verdicts = (verdict for workload in report.workloads for verdict in (workload.verdict, workload.budget) if verdict)
    exceeded = any(verdict.outcome == "does not fit" and verdict.level == "error" for verdict in verdicts)
    return int(exceeded or any(finding.severity in ("error", "warning") for finding in report.findings))

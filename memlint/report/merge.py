"""Several Reports as one, as when different machines analysed different targets; and parts of one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import accumulate

from memlint.base.errors import UsageError
from memlint.report.findings_by_workload import findings_by_workload, moved
from memlint.report.model import Report, Settings
from memlint.report.phrases import listed


def merged(reports: Sequence[Report]) -> Report:
    """One Report of everything in `reports`, of which there is at least one, in their order.

    What several of them say alike about code is said once. Settings that differ are left out, and so is what counts
    findings of a single run: its baseline and its statistics.
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

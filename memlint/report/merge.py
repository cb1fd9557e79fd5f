"""Several Reports as one, as when different machines analysed different targets; and parts of one."""

from __future__ import annotations

import difflib
from itertools import accumulate
from typing import TYPE_CHECKING

from memlint.base.errors import UsageError
from memlint.report.finding_workloads import belonging, moved
from memlint.report.model import Report, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def merged(reports: Sequence[Report]) -> Report:
    """One Report of everything in `reports`, of which there is at least one, in their order.

    What several of them say alike about code is said once. Settings that differ are left out, and so is what counts
    findings of a single run: its baseline and its statistics.
    """
    if len(reports) == 1:
        return reports[0]
    settings = reports[0].settings
    is_shared = all(report.settings == settings for report in reports)
    firsts = accumulate((len(report.workloads) for report in reports), initial=0)
    return Report(
        tool=_all(report.tool for report in reports) or "memlint",
        torch=_all(report.torch for report in reports),
        settings=settings if is_shared else Settings(),
        workloads=[workload for report in reports for workload in report.workloads],
        findings=list(
            dict.fromkeys(
                moved(finding, first)
                for first, report in zip(firsts, reports, strict=False)
                for finding in report.findings
            )
        ),
        skipped=list(dict.fromkeys(skipped for report in reports for skipped in report.skipped)),
    )


def of_workload(report: Report, name: str) -> Report:
    """The Report without other Workloads than those called `name`, and without their findings.

    Raises UsageError if there is none.
    """
    found = [workload for workload in report.workloads if name in (workload.name, workload.target)]
    if not found:
        names = list(dict.fromkeys(workload.name for workload in report.workloads))
        close = difflib.get_close_matches(name, names, 1)
        known = f"Did you mean {close[0]}?" if close else f"There is {', '.join(names)}." if names else "There is none."
        raise UsageError(f"there is no workload {name}", known)
    numbers = [number for number, workload in enumerate(report.workloads) if workload in found]
    theirs = belonging(report)
    findings = [
        *theirs.of_source,
        *(
            moved(finding, kept - number)
            for kept, number in enumerate(numbers)
            for finding in theirs.of_workloads[number]
        ),
    ]
    return report.model_copy(update={"workloads": found, "findings": findings})


def _all(texts: Iterable[str | None]) -> str | None:
    """Each once, by comma; None if there is none."""
    return ", ".join(dict.fromkeys(text for text in texts if text)) or None

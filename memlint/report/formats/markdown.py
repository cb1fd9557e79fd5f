"""Markdown for a summary page of GitHub Actions or a comment.

Only the heading is Markdown. The rest are blocks of HTML without empty lines, in which Markdown means nothing, and
every string of the Report stands in a `code` element, where GitHub makes no mentions and no links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.base.units import format_count, format_nbytes
from memlint.report.formats.entries import NOT_ANALYSED, OVER_LIMIT, entries, failed
from memlint.report.formats.html_blocks import code, folded, table
from memlint.report.naming import place_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.report.formats.entries import Entry
    from memlint.report.model import Estimate, Report, Skipped, Workload

_LINES = 10
"""Of the source lines that hold most at a peak."""
_OUTCOMES = {"fits": "fits", "does not fit": "<b>does not fit</b>", "uncertain": "uncertain"}


def render_markdown(report: Report) -> str:
    """A heading with the verdict, tables of workloads and findings, and folded details."""
    found = entries(report)
    blocks = [
        f"## memlint: {_verdict(report)}",
        table(
            ("workload", "step", "peak", "limit", "verdict"), [row for each in report.workloads for row in _rows(each)]
        ),
        table(
            ("severity", "code", "place", "message"),
            [_finding(entry) for entry in found if entry.code not in (NOT_ANALYSED, OVER_LIMIT)],
        ),
        *(
            folded(f"{code(each.name)} could not be analysed", _error(failed(each, each.error)))
            for each in report.workloads
            if each.error is not None
        ),
        *(
            folded(f"What {code(each.name)} holds at its peak", _held(each.estimate))
            for each in report.workloads
            if each.estimate is not None
        ),
        folded(
            f"Not analysed: {len(report.skipped)}",
            table(("place", "name", "why"), [_skipped(entry) for entry in report.skipped]),
        ),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _verdict(report: Report) -> str:
    errors = sum(workload.error is not None for workload in report.workloads)
    verdicts = (verdict for workload in report.workloads for verdict in (workload.verdict, workload.budget) if verdict)
    exceeded = sum(verdict.outcome == "does not fit" for verdict in verdicts)
    parts = [
        f"{format_count(exceeded, 'limit')} exceeded" if exceeded else "",
        f"{format_count(errors, 'target')} not analysed" if errors else "",
        format_count(len(report.findings), "finding") if report.findings else "no findings",
    ]
    return ", ".join(part for part in parts if part)


def _rows(workload: Workload) -> Iterator[tuple[str, ...]]:
    """A row for each limit of a Workload, or the only one."""
    name = code(workload.name)
    if workload.estimate is None:
        yield name, "", "", "", "<b>not analysed</b>"
        return
    step = ", ".join(
        code(str(fact)) for fact in (workload.mode, workload.dtype, workload.optimizer) if fact is not None
    )
    if workload.batch is not None:
        step += f", batch {workload.batch}"
    limits = [verdict for verdict in (workload.verdict, workload.budget) if verdict is not None]
    for verdict in limits:
        limit = f"{code(verdict.limit_name)} {format_nbytes(verdict.limit)}"
        yield name, step, _peak(workload.estimate, verdict.measure), limit, _OUTCOMES[verdict.outcome]
    if not limits:
        yield name, step, _peak(workload.estimate, "requested" if workload.gpu == "cpu" else "device"), "", ""


def _peak(estimate: Estimate, measure: str) -> str:
    peak = getattr(estimate.peak, measure)
    between = f" ({format_nbytes(peak.low)} to {format_nbytes(peak.high)})" if peak.low != peak.high else ""
    return f"<b>{format_nbytes(peak.estimate)}</b> {measure}{between}"


def _finding(entry: Entry) -> tuple[str, ...]:
    numbers = ":".join(str(number) for number in (entry.line, entry.column) if number is not None)
    place = f"{entry.path}:{numbers}" if numbers else entry.path
    said = "<br>".join(code(line) for line in entry.lines)
    return entry.severity, code(entry.code), code(place), said


def _error(entry: Entry) -> str:
    return "<p>" + "<br>".join(code(line) for line in (*entry.lines, *entry.traceback)) + "</p>"


def _held(estimate: Estimate) -> str:
    categories = sorted(estimate.categories.items(), key=lambda item: -item[1])
    return "\n".join(
        part
        for part in (
            table(("category", "bytes"), [(name, format_nbytes(nbytes)) for name, nbytes in categories if nbytes]),
            table(
                ("line", "bytes", "why", "source"),
                [
                    (
                        code(place_text(line.path, line.line)) or "no line",
                        format_nbytes(line.nbytes),
                        code(line.why),
                        code(line.source or line.module),
                    )
                    for line in estimate.by_line
                ],
                most=_LINES,
            ),
        )
        if part
    )


def _skipped(entry: Skipped) -> tuple[str, ...]:
    return (
        code(entry.path or ""),
        code(entry.name),
        "<br>".join(filter(None, (code(entry.reason), code(entry.hint)))),
    )

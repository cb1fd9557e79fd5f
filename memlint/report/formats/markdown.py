"""Markdown for a summary page of GitHub Actions or a comment: a heading, then only blocks of HTML."""

from collections.abc import Iterator

from memlint.base.units import format_count, format_nbytes
from memlint.report.formats.html_blocks import code, folded, joined, peak, ranks_and_streams, step, table
from memlint.report.formats.problems import NOT_ANALYSED, OVER_LIMIT, Problem, failed, problems
from memlint.report.model import Estimate, Report, Workload
from memlint.report.phrases import listed, outcome_text, place_text, ranks_text

_LINES = 10
"""Maximum number of source lines with the most bytes at a peak."""


def render_markdown(report: Report) -> str:
    """Return a heading with the verdict, tables of workloads and findings, and folded details."""
    findings = [each for each in problems(report) if each.code not in (NOT_ANALYSED, OVER_LIMIT)]
    skipped = [
        (code(each.path), code(each.name), _on_lines(code(each.reason), code(each.hint))) for each in report.skipped
    ]
    blocks = [
        f"## memlint: {_verdict(report)}",
        table(
            ("workload", "step", "peak", "limit", "verdict"), [row for each in report.workloads for row in _rows(each)]
        ),
        table(("severity", "code", "place", "message"), [_finding(each) for each in findings]),
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
        *(
            folded(f"Ranks and streams of {code(each.name)}", ranks_and_streams(each.ranks, each.estimate.streams))
            for each in report.workloads
            if each.estimate is not None
        ),
        folded(f"Not analysed: {len(skipped)}", table(("place", "name", "why"), skipped)),
    ]
    return joined(blocks) + "\n"


def _verdict(report: Report) -> str:
    exceeded, errors = report.outcomes.count("does not fit"), report.num_failed
    return listed(
        f"{format_count(exceeded, 'limit')} exceeded" if exceeded else "",
        f"{format_count(errors, 'target')} not analysed" if errors else "",
        format_count(len(report.findings), "finding") if report.findings else "no findings",
    )


def _rows(workload: Workload) -> Iterator[tuple[str, ...]]:
    """Yield a row for each limit of a Workload, or a single one without limits."""
    name, estimate = code(workload.name), workload.estimate
    if estimate is None:
        yield name, "", "", "", "<b>not analysed</b>"
        return
    subject = name, step(workload.mode, workload.batch, workload.dtype, workload.optimizer, ranks_text(workload.ranks))
    for verdict in workload.verdicts:
        limit = f"{code(verdict.limit_name)} {format_nbytes(verdict.limit)}"
        text = outcome_text(workload, verdict.outcome)
        outcome = f"<b>{text}</b>" if verdict.outcome == "does not fit" else text
        yield *subject, peak(estimate.peak[verdict.measure], f" {verdict.measure}"), limit, outcome
    if not workload.verdicts:
        yield *subject, peak(estimate.peak[workload.measure], f" {workload.measure}"), "", ""


def _finding(problem: Problem) -> tuple[str, ...]:
    return problem.severity, code(problem.code), code(problem.place), _on_lines(*map(code, problem.lines))


def _error(problem: Problem) -> str:
    return f"<p>{_on_lines(*map(code, (*problem.lines, *problem.traceback)))}</p>"


def _on_lines(*cells: str) -> str:
    return joined(cells, "<br>")


def _held(estimate: Estimate) -> str:
    categories = sorted(estimate.categories.items(), key=lambda item: -item[1])
    lines = [
        (
            code(place_text(line.path, line.line, line.library)) or "no line",
            format_nbytes(line.nbytes),
            code(line.why),
            code(line.source or line.module),
        )
        for line in estimate.by_line
    ]
    tables = (
        table(("category", "bytes"), [(name, format_nbytes(nbytes)) for name, nbytes in categories if nbytes]),
        table(("line", "bytes", "why", "source"), lines, most=_LINES),
    )
    return joined(tables, "\n")

"""The Report for a terminal: the verdict first, then the numbers, then what to do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from memlint.base.units import format_count, format_nbytes
from memlint.lint.rule import is_notable
from memlint.report.formats.log import for_log
from memlint.report.layout import Paint, cut, table
from memlint.report.naming import MEASURES, place_text, tensor_text
from memlint.report.plan_text import plan_lines, what_if_lines
from memlint.report.sparkline import course_lines
from memlint.report.sweep_text import sweep_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memlint.report.layout import Look
    from memlint.report.model import (
        Baseline,
        Error,
        Estimate,
        Finding,
        Interval,
        LineBytes,
        Report,
        Skipped,
        Verdict,
        Workload,
    )

_OUTCOME_COLORS = {"fits": "green", "does not fit": "red", "uncertain": "yellow"}
_SEVERITY_COLORS = {"error": "red", "warning": "yellow", "info": "cyan", "note": "bright_black"}
_CATEGORY_COLORS = {
    "parameter": "blue",
    "buffer": "blue",
    "gradient": "magenta",
    "optimizer_state": "cyan",
    "input": "white",
    "activation": "yellow",
    "temporary": "green",
    "workspace": "red",
    "other": "white",
}
_BAR = 24
_WIDE = 120  # columns from which shapes are shown


def render_text(report: Report, look: Look) -> str:
    """The Report as text that ends with a newline; empty if there is nothing to say."""
    report, paint = for_log(report), Paint(look)
    blocks = [
        *("\n".join(_workload(workload, paint)) for workload in report.workloads),
        *_findings(report, paint),
        "\n".join(_skipped(report.skipped, paint)),
        "\n".join(_baseline(report.baseline, paint)),
        "\n".join(_summary(report, paint)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _workload(workload: Workload, paint: Paint) -> Iterator[str]:
    estimate = workload.estimate
    if workload.error is not None:
        yield from _error(workload.target, workload.error, paint)
    if estimate is None:
        return
    yield _headline(workload, estimate, paint)
    yield paint("  " + _step(workload), dim=True)
    if workload.budget is not None:
        yield _budget(workload.budget, estimate, paint)
    if paint.look.verbosity < 0:
        return
    yield from ("", *_numbers(workload, estimate, paint), "", *_peak(estimate, paint))
    yield from _categories(estimate, paint)
    if estimate.course is not None:
        yield from ("", *course_lines(estimate.course, paint))
    if estimate.by_line:
        yield from ("", *_lines(estimate, paint))
    if paint.look.verbosity > 0:
        yield from _details(estimate, paint)
        yield from what_if_lines(workload.what_ifs, estimate, paint)
    if workload.sweep:
        yield from ("", *sweep_lines(workload.sweep, paint))
    if workload.plan is not None:
        yield from ("", *plan_lines(workload.plan, estimate, paint))
    yield from _assumptions(workload, paint)


def _assumptions(workload: Workload, paint: Paint) -> Iterator[str]:
    if workload.assumptions:
        yield from ("", paint("  Assumed", bold=True))
        for assumption in workload.assumptions:
            place = place_text(assumption.path, assumption.line)
            yield f"  - {assumption.text}" + (paint(f"  {place}", dim=True) if place else "")


def _error(target: str, error: Error, paint: Paint) -> Iterator[str]:
    yield f"{paint('error', 'red', bold=True)}: {paint(target, bold=True)}: {error.message}"
    yield from (f"    {line}" for line in error.traceback)
    if error.hint:
        yield f"  {paint('help', 'cyan', bold=True)}: {error.hint}"


def _headline(workload: Workload, estimate: Estimate, paint: Paint) -> str:
    verdict = workload.verdict
    measure = verdict.measure if verdict else "requested" if workload.gpu == "cpu" else "device"
    needed = paint(format_nbytes(getattr(estimate.peak, measure).estimate), bold=True)
    start = f"{paint(_label(workload), bold=True)} needs {needed}"
    if verdict is None:
        return f"{start} on {workload.gpu}" if workload.gpu else start
    outcome = paint(verdict.outcome, _OUTCOME_COLORS[verdict.outcome], bold=True)
    return f"{start} on {verdict.limit_name} ({format_nbytes(verdict.limit)}): {outcome}"


def _label(workload: Workload) -> str:
    return workload.target if workload.name in workload.target else f"{workload.name} ({workload.target})"


def _step(workload: Workload) -> str:
    facts = (
        f"{workload.mode} step" if workload.mode else "",
        f"batch {workload.batch}" if workload.batch else "",
        workload.dtype or "",
        workload.optimizer if workload.mode == "train" else "",
    )
    return ", ".join(fact for fact in facts if fact)


def _budget(budget: Verdict, estimate: Estimate, paint: Paint) -> str:
    said = {"fits": "kept", "does not fit": "exceeded", "uncertain": "may be exceeded"}[budget.outcome]
    color = "yellow" if budget.level == "warning" and said == "exceeded" else _OUTCOME_COLORS[budget.outcome]
    peak = f"{budget.measure} {format_nbytes(getattr(estimate.peak, budget.measure).estimate)}"
    return f"  {budget.limit_name} {format_nbytes(budget.limit)}: {paint(said, color, bold=True)} ({peak})"


def _numbers(workload: Workload, estimate: Estimate, paint: Paint) -> Iterator[str]:
    rows = []
    for name in ("requested",) if workload.gpu == "cpu" else tuple(MEASURES):
        interval: Interval = getattr(estimate.peak, name)
        between = f"{format_nbytes(interval.low)} to {format_nbytes(interval.high)}"
        certain = interval.low == interval.high
        rows.append(
            (
                f"  {name}",
                paint(format_nbytes(interval.estimate), bold=True),
                "" if certain else between,
                paint(MEASURES[name], dim=True),
            )
        )
    requested = estimate.peak.requested.estimate
    if estimate.least is not None and is_notable(estimate.least - requested, requested):
        saved = format_nbytes(requested - estimate.least)
        why = paint(f"requested, if every tensor died at its last use ({saved} less)", dim=True)
        rows.append(("  at least", format_nbytes(estimate.least), "", why))
    yield from table(rows, ("left", "right", "left", "left"))


def _peak(estimate: Estimate, paint: Paint) -> Iterator[str]:
    place = place_text(estimate.path, estimate.line)
    what = ", ".join(part for part in (estimate.op, estimate.module) if part)
    at, during = f" at {place}" if place else "", f" ({what})" if what else ""
    yield f"{paint('  At the peak', bold=True)}, in {estimate.phase}{at}{during}"
    step = {phase: nbytes for phase, nbytes in estimate.phase_peaks.items() if phase != "other"}
    if len(step) > 1:
        phases = ", ".join(f"{phase} {format_nbytes(nbytes)}" for phase, nbytes in step.items())
        yield paint(f"  highest by phase: {phases}", dim=True)


def _categories(estimate: Estimate, paint: Paint) -> Iterator[str]:
    total = sum(estimate.categories.values()) or 1
    rows = []
    for category, nbytes in sorted(estimate.categories.items(), key=lambda item: -item[1]):
        block = "\u2588" if paint.look.blocks else "#"
        bar = paint(block * round(_BAR * nbytes / total), _CATEGORY_COLORS[category])
        if nbytes:
            rows.append((f"  {category.replace('_', ' ')}", format_nbytes(nbytes), _share(nbytes / total), bar))
    yield from table(rows, ("left", "right", "right", "left"))


def _share(share: float) -> str:
    return "<1%" if share < 0.01 else f"{share:.0%}"


def _lines(estimate: Estimate, paint: Paint) -> Iterator[str]:
    shown = estimate.by_line[: paint.rows(len(estimate.by_line))]
    yield paint("  Alive at the peak, by source line", bold=True)
    rows = [
        (
            f"  {format_nbytes(line.nbytes)}",
            f"{line.num_buffers} x",
            place_text(line.path, line.line),
            line.why,
            _what(line),
        )
        for line in shown
    ]
    for text, line in zip(table(rows, ("right", "right", "left", "left", "left")), shown, strict=True):
        short, place = cut(text, paint.look.width), place_text(line.path, line.line)
        yield short.replace(place, paint(place, "cyan"), 1) if place else short
    rest = len(estimate.by_line) - len(shown)
    if rest:
        yield paint(f"    and {rest} more lines: see them with -v", dim=True)


def _what(line: LineBytes) -> str:
    return line.source or line.module or ", ".join(category.replace("_", " ") for category in line.categories)


def _details(estimate: Estimate, paint: Paint) -> Iterator[str]:
    if estimate.by_module:
        yield from ("", paint("  Alive at the peak, by module", bold=True))
        rows = [
            (f"  {format_nbytes(row.nbytes)}", f"{row.num_buffers} x", row.module or "(no submodule)", row.type)
            for row in estimate.by_module
        ]
        yield from table(rows, ("right", "right", "left", "left"))
    if estimate.at_peak:
        yield from ("", paint(f"  Alive at the peak: {len(estimate.at_peak)} of {estimate.num_at_peak}", bold=True))
        buffers = [
            (
                f"  {format_nbytes(buffer.nbytes)}",
                tensor_text(buffer.dtype, buffer.shape),
                buffer.category.replace("_", " "),
                buffer.name or place_text(buffer.path, buffer.line),
                buffer.op,
                buffer.why,
            )
            for buffer in estimate.at_peak
        ]
        yield from (cut(line, paint.look.width) for line in table(buffers, ("right", *["left"] * 5)))


def _findings(report: Report, paint: Paint) -> Iterator[str]:
    if report.statistics is None:
        yield from ("\n".join(_finding(finding, paint, len(report.workloads) > 1)) for finding in report.findings)
    else:
        rows = [(str(row.count), row.code, row.name) for row in report.statistics]
        yield "\n".join(table(rows, ("right", "left", "left")))


def _baseline(baseline: Baseline | None, paint: Paint) -> Iterator[str]:
    if baseline is None:
        return
    if baseline.num_findings and paint.look.verbosity >= 0:
        yield f"{format_count(baseline.num_findings, 'known finding')} left out: see {baseline.path}."
    if baseline.stale:
        yield f"{paint('Stale', bold=True)} in {baseline.path}, which --write-baseline renews:"
        for stale in baseline.stale:
            where = f" on `{stale.text}`" if stale.text else ""
            yield f"  {stale.path}: {stale.count} x {stale.code}{where}"


def _finding(finding: Finding, paint: Paint, several: bool) -> Iterator[str]:
    color = _SEVERITY_COLORS[finding.severity]
    # A model that was built from an installed package alone has no file of the user's.
    place = f"{finding.path}:{finding.line}:{finding.column}" if finding.path else finding.workload or ""
    yield f"{paint(place, bold=True)}: {paint(finding.code, color, bold=True)} {finding.message}"
    if finding.peak_change is not None and finding.peak_change < 0:
        where = f" of {finding.workload}" if several and finding.workload else ""
        saved = paint(format_nbytes(-finding.peak_change), bold=True)
        yield f"    saves {saved} of the peak{where} ({finding.confidence})"
    if finding.fix:
        yield f"    {paint('help', 'cyan', bold=True)}: {finding.fix}"


def _skipped(skipped: Sequence[Skipped], paint: Paint) -> Iterator[str]:
    if not skipped or paint.look.verbosity < 0:
        return
    yield paint("Not analysed", bold=True)
    named: dict[str | None, list[str]] = {}
    for entry in skipped:
        if entry.name and not entry.hint and paint.look.verbosity == 0:
            named.setdefault(entry.path, []).append(entry.name)
            continue
        subject = ": ".join(part for part in (entry.path or "", entry.name) if part)
        yield f"  {subject}: {entry.reason}" if subject else f"  {entry.reason}"
        if entry.hint:
            yield f"    {paint('help', 'cyan', bold=True)}: {entry.hint}"
    for path, names in named.items():
        yield (f"  {path}: " if path else "  ") + ", ".join(names) + paint(" (see why with -v)", dim=True)


def _summary(report: Report, paint: Paint) -> Iterator[str]:
    errors = sum(workload.error is not None for workload in report.workloads)
    exceeded = sum(
        verdict is not None and verdict.outcome == "does not fit"
        for workload in report.workloads
        for verdict in (workload.verdict, workload.budget)
    )
    counts = Counter(finding.severity for finding in report.findings)
    parts = [
        _of_severity(counts[severity], severity)
        for severity in ("error", "warning", "info", "note")
        if counts[severity]
    ]
    if report.findings:
        yield paint(f"Found {format_count(len(report.findings), 'finding')} ({', '.join(parts)}).", bold=True)
    elif not errors and not exceeded:
        yield paint("No findings.", "green", bold=True)
    if exceeded:
        yield paint(f"{format_count(exceeded, 'limit')} exceeded.", "red", bold=True)
    if errors:
        yield paint(f"{format_count(errors, 'target')} could not be analysed.", "red", bold=True)


def _of_severity(number: int, severity: str) -> str:
    return f"{number} info" if severity == "info" else format_count(number, severity)

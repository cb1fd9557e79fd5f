"""The Report for a terminal: the verdict first, then the numbers, then what to do."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from memlint.base.units import format_count, format_nbytes
from memlint.lint.rule import is_notable
from memlint.report.escaping import for_log
from memlint.report.model import (
    Assumption,
    Baseline,
    Doubtful,
    Error,
    Estimate,
    Finding,
    LineBytes,
    Ranks,
    Report,
    Script,
    Skipped,
    Verdict,
    Workload,
)
from memlint.report.phrases import (
    BUDGET_OUTCOMES,
    CAUSES,
    MEASURES,
    NO_MODULE,
    beside,
    bounds,
    by_severity,
    cache_text,
    fitting_text,
    is_wide,
    line_detail,
    listed,
    not_guarded_text,
    not_reached_text,
    of_peak,
    outcome_text,
    own_step_words,
    place_text,
    program_name,
    program_text,
    ranks_text,
    saving,
    script_text,
    share,
    spaced,
    step_text,
    stream_text,
    tensor_text,
    tokens_text,
    torch_text,
    traffic_text,
    way,
)
from memlint.report.sparkline import course_lines
from memlint.report.text_style import OUTCOME_COLORS, TextStyle, cut, table
from memlint.report.what_if_text import plan_lines, sweep_lines, what_if_lines

_SEVERITY_COLORS = {"error": "red", "warning": "yellow", "info": "cyan", "note": "bright_black"}
_CATEGORY_COLORS = {
    "parameter": "blue",
    "buffer": "blue",
    "gradient": "magenta",
    "optimizer_state": "cyan",
    "input": "white",
    "activation": "yellow",
    "temporary": "green",
    "communication": "bright_blue",
    "workspace": "red",
    "kv_cache": "cyan",
    "other": "white",
}
_BAR = 24
_GPUS = 5
"""Named of those that a step fits into."""


def render_text(report: Report, paint: TextStyle) -> str:
    """The Report as text that ends with a newline; empty if there is nothing to say."""
    return "\n\n".join(blocks(report, paint)) + "\n"


def blocks(report: Report, paint: TextStyle) -> list[str]:
    """The Report in the parts between which the text has an empty line, none of which is empty.

    Those of a Workload and of a finding are the blocks of `block_of`; tables of batch sizes come behind all findings.
    """
    report = for_log(report)
    several = len(report.workloads) > 1
    parts = [
        *("\n".join(_workload(workload, paint)) for workload in report.workloads),
        *_findings(report, paint),
        *("\n".join(_answers(workload, paint, several=several)) for workload in report.workloads),
        "\n".join(_skipped(report.skipped, paint)),
        "\n".join(_baseline(report.baseline, paint)),
        "\n".join(_summary(report, paint)),
    ]
    return [part for part in parts if part]


def block_of(part: Workload | Finding, paint: TextStyle) -> str:
    """The block of a Workload, which is empty for one without Estimate or error, or of a finding in the only one."""
    record = for_log(part)
    return "\n".join(_workload(record, paint) if isinstance(record, Workload) else _finding(record, paint, False))


def _workload(workload: Workload, paint: TextStyle) -> Iterator[str]:
    estimate = workload.estimate
    if workload.error is not None:
        yield from _error(workload.target, workload.error, paint)
    if estimate is None:
        return
    yield _headline(workload, estimate, paint)
    optimizer = workload.optimizer if workload.mode == "train" else ""
    others = optimizer, tokens_text(estimate), torch_text(workload), ranks_text(workload.ranks)
    step = step_text(workload.mode, workload.batch, workload.dtype, *others)
    if step:
        yield paint(f"  {step}", dim=True)
    sizes = f"sizes assumed: {workload.guessed}" if workload.guessed else ""
    yield from (f"  {text}" for text in (workload.built_by, sizes) if text)
    if workload.script is not None:
        yield from _run(workload.script, paint, is_named=bool(workload.built_by))
    if workload.budget is not None:
        yield _budget(workload.budget, estimate, paint)
    if paint.verbosity < 0:
        return
    sections = (
        _numbers(workload, estimate, paint),
        (*_streams(estimate, paint), *_ranks(workload.ranks, paint)),
        (*_peak(estimate, paint), *_categories(estimate, paint)),
        course_lines(estimate.course, paint) if estimate.course is not None else (),
        _lines(estimate, paint),
        *(_details(estimate, paint) if paint.verbosity > 0 else ()),
        _writes(workload.script, paint),
        _assumptions(workload, paint),
    )
    for section in sections:
        if lines := list(section):
            yield from ("", *lines)


def _answers(workload: Workload, paint: TextStyle, *, several: bool) -> Iterator[str]:
    """Tables of other sizes of a Workload, the last to be computed; with `several`, each has its name."""
    estimate = workload.estimate
    if estimate is None or paint.verbosity < 0:
        return
    sections = (
        what_if_lines(workload.what_ifs, estimate, paint) if paint.verbosity > 0 else (),
        plan_lines(workload.plan, estimate, paint) if workload.plan is not None else (),
        sweep_lines(workload.sweep, paint),
    )
    shown = [lines for lines in map(list, sections) if lines]
    if shown and several:
        yield paint(workload.name, bold=True)
    for number, lines in enumerate(shown):
        yield from ("", *lines) if number else lines


def _run(script: Script, paint: TextStyle, *, is_named: bool) -> Iterator[str]:
    """Say how a script was called, unless it `is_named` already, what it did and why it was over."""
    command = script.command if script.command != program_name(script) and not is_named else ""
    for text in filter(None, (command, script_text(script), not_reached_text(script))):
        yield paint(f"  {text}", dim=True)
    if script.stop is not None:
        yield from paint.help(script.stop.hint, "  ")


def _writes(script: Script | None, paint: TextStyle) -> Iterator[str]:
    """List what the script would have written and sent over the network, and the programs that it started."""
    if script is None or not (script.writes or script.connections or script.programs or script.not_guarded):
        return
    yield paint("  Kept from the script", bold=True)
    shown = paint.first_rows(script.writes)
    rows = [
        (
            f"  - {write.file}",
            "removed" if write.nbytes is None else format_nbytes(write.nbytes),
            paint(place_text(write.path, write.line), dim=True),
        )
        for write in shown
    ]
    yield from table(rows, ("left", "right", "left"))
    yield from paint.rest(len(script.writes) - len(shown), "more files")
    for each in script.connections:
        yield f"  - network: {each.host}  {paint(place_text(each.path, each.line), dim=True)}"
    started = paint.first_rows(script.programs)
    for program in started:
        place = paint(place_text(program.path, program.line), dim=True)
        yield f"  - {cut(program_text(program), paint.width)}  {place}"
    yield from paint.rest(len(script.programs) - len(started), "more programs")
    if text := not_guarded_text(script):
        yield f"  - {text}"


def _assumptions(workload: Workload, paint: TextStyle) -> Iterator[str]:
    for title, is_found in (("Found in the project", True), ("Assumed", False)):
        shown = [each for each in workload.assumptions if each.found is is_found]
        if shown:
            yield paint(f"  {title}", bold=True)
        for text, same in _by_text(shown).items():
            count = len(same) if paint.verbosity > 0 or len(same) == 2 else 1
            more = f", and {len(same) - count} more lines" if count < len(same) else ""
            for each in same[:count]:
                place = place_text(each.path, each.line, each.library)
                yield f"  - {text}" + (paint(f"  {place}{more}", dim=True) if place else "")


def _by_text(assumptions: Iterable[Assumption]) -> dict[str, list[Assumption]]:
    texts: dict[str, list[Assumption]] = {}
    for each in assumptions:
        texts.setdefault(each.text, []).append(each)
    return texts


def _error(target: str, error: Error, paint: TextStyle) -> Iterator[str]:
    yield f"{paint('error', 'red', bold=True)}: {paint(target, bold=True)}: {error.message}"
    yield from (f"    {line}" for line in error.traceback)
    yield from paint.help(error.hint)


def _headline(workload: Workload, estimate: Estimate, paint: TextStyle) -> str:
    verdict, name = workload.verdict, workload.name
    # What a script was called with may fill lines, and stands below the verdict.
    script = None if workload.built_by else workload.script
    target = workload.target if script is None else program_name(script)
    label = target if name in target else f"{name} ({target})"
    needed = paint(format_nbytes(estimate.peak[workload.measure].estimate), bold=True)
    start = f"{paint(label, bold=True)} needs {needed}"
    own = own_step_words(workload.script)
    if verdict is None:
        so_far = " so far" if workload.error is not None else ""
        return f"{start}{so_far} on {workload.gpu}{own}" if workload.gpu else f"{start}{so_far}{own}"
    outcome = paint(outcome_text(workload, verdict.outcome), OUTCOME_COLORS[verdict.outcome], bold=True)
    return f"{start} on {verdict.limit_name} ({format_nbytes(verdict.limit)}): {outcome}{own}"


def _budget(budget: Verdict, estimate: Estimate, paint: TextStyle) -> str:
    is_warning = budget.level == "warning" and budget.outcome == "does not fit"
    color = "yellow" if is_warning else OUTCOME_COLORS[budget.outcome]
    outcome = paint(BUDGET_OUTCOMES[budget.outcome], color, bold=True)
    peak = f"{budget.measure} {format_nbytes(estimate.peak[budget.measure].estimate)}"
    return f"  {budget.limit_name} {format_nbytes(budget.limit)}: {outcome} ({peak})"


def _numbers(workload: Workload, estimate: Estimate, paint: TextStyle) -> Iterator[str]:
    rows = [
        (
            f"  {measure}",
            paint(format_nbytes(estimate.peak[measure].estimate), bold=True),
            bounds(estimate.peak[measure]),
            paint(meaning, dim=True),
        )
        for measure, meaning in MEASURES.items()
        if measure == "requested" or workload.gpu != "cpu"
    ]
    requested, least = estimate.peak.requested.estimate, estimate.least
    if least is not None and is_notable(least - requested, requested):
        saved = format_nbytes(requested - least)
        why = paint(f"requested, if every tensor died at its last use ({saved} less)", dim=True)
        rows.append(("  at least", format_nbytes(least), "", why))
    yield from table(rows, ("left", "right", "left", "left"))
    if paint.verbosity > 0 or is_wide(estimate.peak.device):
        yield from _reasons(estimate.doubtful, paint)
    if workload.fitting is not None:
        most = len(workload.fitting) if paint.verbosity > 0 else _GPUS
        why = paint(f"by the kernels of {workload.gpu}", dim=True)
        yield f"  fits into  {fitting_text(workload.fitting, most)}; {why}"


def _reasons(doubtful: Sequence[Doubtful], paint: TextStyle) -> Iterator[str]:
    """Why the peak of `device` is an interval."""
    if doubtful:
        yield paint("  Why device is between", bold=True)
    rows = [
        (f"  {CAUSES[each.cause]}", way(each.below, "-"), way(each.above, "+"), paint(each.why, dim=True))
        for each in doubtful
    ]
    yield from (cut(line, paint.width) for line in table(rows, ("left", "right", "right", "left")))


def _streams(estimate: Estimate, paint: TextStyle) -> Iterator[str]:
    """List how much of what is reserved the pools of each stream take."""
    if estimate.streams:
        yield paint("  Reserved by stream", bold=True)
    rows = [
        (f"  {stream_text(each)}", format_nbytes(each.reserved), f"requested {format_nbytes(each.requested)}")
        for each in estimate.streams
    ]
    yield from table(rows, ("left", "right", "left"))


def _ranks(ranks: Ranks | None, paint: TextStyle) -> Iterator[str]:
    """List what the rank exchanges in a step, and what it holds for that."""
    if ranks is None or not (ranks.traffic or ranks.outside):
        return
    if ranks.traffic:
        yield paint(f"  Exchanged in a step by {ranks_text(ranks)}", bold=True)
    rows = [
        (f"  {traffic_text(each)}", format_nbytes(each.nbytes), f"{format_nbytes(each.sent)} sent")
        for each in ranks.traffic
    ]
    yield from table(rows, ("left", "right", "left"))
    if ranks.others:
        yield paint(f"  {ranks.others}", dim=True)
    if ranks.outside:
        yield paint("  Outside of the allocator, in device alone", bold=True)
    held = [(f"  {each.name}", format_nbytes(each.nbytes.estimate), bounds(each.nbytes)) for each in ranks.outside]
    yield from table(held, ("left", "right", "left"))


def _peak(estimate: Estimate, paint: TextStyle) -> Iterator[str]:
    place = place_text(estimate.path, estimate.line, estimate.library)
    what = listed(estimate.op, estimate.module)
    at, during = f" at {place}" if place else "", f" ({what})" if what else ""
    yield f"{paint('  At the peak', bold=True)}, in {estimate.phase}{at}{during}"
    phases = [f"{name} {format_nbytes(nbytes)}" for name, nbytes in estimate.phase_peaks.items() if name != "other"]
    if len(phases) > 1:
        yield paint(f"  highest by phase: {', '.join(phases)}", dim=True)
    models = [f"{name} {format_nbytes(nbytes)}" for name, nbytes in estimate.model_peaks.items()]
    if models:
        yield paint(f"  highest by model: {', '.join(models)}", dim=True)


def _categories(estimate: Estimate, paint: TextStyle) -> Iterator[str]:
    total = sum(estimate.categories.values())
    block = "\u2588" if paint.blocks else "#"
    rows = [
        (
            f"  {spaced(category)}",
            format_nbytes(nbytes),
            share(nbytes, total),
            paint(block * round(_BAR * nbytes / total), _CATEGORY_COLORS[category]),
        )
        for category, nbytes in sorted(estimate.categories.items(), key=lambda item: -item[1])
        if nbytes
    ]
    yield from table(rows, ("left", "right", "right", "left"))
    if estimate.generation is not None and estimate.generation.cache_nbytes:
        yield paint(f"  {cache_text(estimate.generation)}", dim=True)


def _lines(estimate: Estimate, paint: TextStyle) -> Iterator[str]:
    shown = paint.first_rows(estimate.by_line)
    if shown:
        yield paint("  Alive at the peak, by source line", bold=True)
    places = [_row_place(line) for line in shown]
    rows = [
        (f"  {format_nbytes(line.nbytes)}", f"{line.num_buffers} x", place, line.why, line_detail(line))
        for line, place in zip(shown, places, strict=True)
    ]
    for text, place in zip(table(rows, ("right", "right", "left", "left", "left")), places, strict=True):
        short = cut(text, paint.width)
        yield short.replace(place, paint(place, "cyan"), 1) if place else short
    yield from paint.rest(len(estimate.by_line) - len(shown), "more lines")


def _row_place(line: LineBytes) -> str:
    """A line as a row says it: where many rows have one line of the project, that of the package tells them apart."""
    if line.library is None or line.path is None:
        return place_text(line.path, line.line)
    return f"{place_text(line.library.path, line.library.line)} from {Path(line.path).name}:{line.line}"


def _details(estimate: Estimate, paint: TextStyle) -> Iterator[Iterable[str]]:
    """The sections that are shown with -v alone."""
    if estimate.by_module:
        rows = [
            (f"  {format_nbytes(row.nbytes)}", f"{row.num_buffers} x", row.module or NO_MODULE, row.type)
            for row in estimate.by_module
        ]
        title = paint("  Alive at the peak, by module", bold=True)
        yield (title, *table(rows, ("right", "right", "left", "left")))
    if estimate.at_peak:
        buffers = [
            (
                f"  {format_nbytes(buffer.nbytes)}",
                tensor_text(buffer.dtype, buffer.shape),
                spaced(buffer.category),
                buffer.name or place_text(buffer.path, buffer.line, buffer.library),
                buffer.op,
                buffer.why,
            )
            for buffer in estimate.at_peak
        ]
        title = paint(f"  Alive at the peak: {len(estimate.at_peak)} of {estimate.num_at_peak}", bold=True)
        yield (title, *(cut(line, paint.width) for line in table(buffers, ("right", *["left"] * 5))))


def _findings(report: Report, paint: TextStyle) -> Iterator[str]:
    if report.statistics is None:
        yield from ("\n".join(_finding(finding, paint, len(report.workloads) > 1)) for finding in report.findings)
    else:
        rows = [(str(row.count), row.code, row.name) for row in report.statistics]
        yield "\n".join(table(rows, ("right", "left", "left")))


def _baseline(baseline: Baseline | None, paint: TextStyle) -> Iterator[str]:
    if baseline is None:
        return
    if baseline.num_findings and paint.verbosity >= 0:
        yield f"{format_count(baseline.num_findings, 'known finding')} left out: see {baseline.path}."
    if baseline.stale:
        yield f"{paint('Stale', bold=True)} in {baseline.path}, which --write-baseline renews:"
    for stale in baseline.stale:
        where = f" on `{stale.text}`" if stale.text else ""
        yield f"  {stale.path}: {stale.count} x {stale.code}{where}"


def _finding(finding: Finding, paint: TextStyle, several: bool) -> Iterator[str]:
    color = _SEVERITY_COLORS[finding.severity]
    # A model that was built from an installed package alone has no file of the user's.
    place = f"{finding.path}:{finding.line}:{finding.column}" if finding.path else finding.workload or ""
    place = paint(place, bold=True) + beside(finding.library)
    yield f"{place}: {paint(finding.code, color, bold=True)} {finding.message}"
    if saved := saving(finding.peak_change):
        where = f" of {finding.workload}" if several and finding.workload else ""
        yield f"    saves {paint(saved, bold=True)} {of_peak(finding.measure)}{where} ({finding.confidence})"
    yield from paint.help(finding.fix, "    ")


def _skipped(skipped: Sequence[Skipped], paint: TextStyle) -> Iterator[str]:
    if not skipped or paint.verbosity < 0:
        return
    yield paint("Not analysed", bold=True)
    names_by_path: dict[str | None, list[str]] = {}
    for each in skipped:
        if each.name and not each.hint and paint.verbosity == 0:
            names_by_path.setdefault(each.path, []).append(each.name)
            continue
        yield "  " + ": ".join([*filter(None, (each.path, each.name)), each.reason])
        yield from paint.help(each.hint, "    ")
    for path, names in names_by_path.items():
        yield (f"  {path}: " if path else "  ") + ", ".join(names) + paint(" (see why with -v)", dim=True)


def _summary(report: Report, paint: TextStyle) -> Iterator[str]:
    exceeded = report.outcomes.count("does not fit")
    if report.findings:
        severities = by_severity(finding.severity for finding in report.findings)
        yield paint(f"Found {format_count(len(report.findings), 'finding')} ({severities}).", bold=True)
    elif not report.num_failed and not exceeded and not report.settings.quick:
        yield paint("No findings.", "green", bold=True)
    if exceeded:
        yield paint(f"{format_count(exceeded, 'limit')} exceeded.", "red", bold=True)
    if report.num_failed:
        yield paint(f"{format_count(report.num_failed, 'target')} could not be analysed.", "red", bold=True)

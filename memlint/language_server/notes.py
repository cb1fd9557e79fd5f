"""From a Report to what an editor shows in each file: the bytes of lines, the verdicts of Workloads, and problems."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memlint.base.errors import NO_MODULE_FOUND
from memlint.base.units import format_count, format_nbytes
from memlint.lint.severity import Severity
from memlint.report.formats.problems import NOT_ANALYSED, Problem, problems, target_file
from memlint.report.model import NOT_BY_LINE, AliveBuffer, Finding, LineBytes, Report, Timeline, Workload
from memlint.report.phrases import (
    bounds,
    is_own_step,
    largest_batch,
    listed,
    outcome_text,
    program_name,
    share,
    spaced,
    step_text,
    tensor_text,
    tokens_text,
)

_NUM_ROWS = 12
"""Rows of tensors of a line that a hover lists; the rest is counted."""
_SAVED = "saved for backward"
_NOTABLE = 0.001
"""The share of the peak from which on the bytes of a line stand beside it unasked."""


@dataclass(frozen=True, slots=True)
class LineNote:
    """The bytes that a line holds at the peak of a Workload, or for its backward if that is more."""

    line: int
    nbytes: int
    text: str
    """`3.83 GiB saved for backward`, `64.0 MiB saved for backward, 192.1 MiB at the peak`."""
    details: str
    """The same by tensor, as Markdown."""
    is_notable: bool
    """True if it is enough to be shown unasked."""


@dataclass(frozen=True, slots=True)
class VerdictNote:
    """The outcome for one Workload."""

    qualname: str
    """The class or function in the file; empty for a script."""
    text: str
    """`10.2 GiB on NVIDIA A100 80 GB, fits to batch 69`."""
    details: str
    """The peaks, as Markdown."""
    target: str
    """The target as it is typed after `memlint check`, if nobody has declared it yet; else empty."""


@dataclass(frozen=True, slots=True)
class FileNotes:
    """Everything that a Report says of one file."""

    lines: tuple[LineNote, ...] = ()
    verdicts: tuple[VerdictNote, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Findings of traced steps."""
    problems: tuple[Problem, ...] = ()
    """Workloads that could not be analysed, and limits that are exceeded."""


def notes_of(report: Report, directory: Path, scripts: Sequence[str] = ()) -> dict[str, FileNotes]:
    """Give the notes by real path; paths in the Report are relative to `directory`, `scripts` are those that ran.

    A file without models is nobody's mistake: it gets no problem, and one whose models cannot be built a note.
    """
    lines: defaultdict[str, list[LineNote]] = defaultdict(list)
    verdicts: defaultdict[str, list[VerdictNote]] = defaultdict(list)
    findings: defaultdict[str, list[Finding]] = defaultdict(list)
    wrong: defaultdict[str, list[Problem]] = defaultdict(list)

    def real(path: str) -> str:
        return os.path.realpath(directory / path)

    shown = [workload for workload in report.workloads if workload.estimate is not None]
    for workload in shown:
        for path, note in _line_notes(workload, named=len(shown) > 1):
            lines[real(path)].append(note)
        verdicts[_file(workload, real, scripts)].append(_verdict_note(workload))
    for finding in report.findings:
        if finding.workload is not None:
            findings[real(finding.path)].append(finding)
    errors = {target_file(workload): workload.error for workload in report.workloads if workload.error is not None}
    of_findings = {(each.code, each.path, each.line) for each in report.findings}
    for problem in problems(report):
        if (problem.code, problem.path, problem.line) not in of_findings:
            path, line = _place(problem)
            error = errors.get(problem.path) if problem.code == NOT_ANALYSED else None
            if error is not None and error.kind == "target":
                if error.message == NO_MODULE_FOUND:
                    continue
                problem = replace(problem, severity=Severity.NOTE)  # noqa: PLW2901
            script = next((each for each in scripts if os.path.basename(each) == path.split(" ")[0]), path)  # noqa: PTH119
            wrong[real(script)].append(replace(problem, line=line))
    return {
        path: FileNotes(
            lines=tuple(_heaviest(lines[path])),
            verdicts=tuple(verdicts[path]),
            findings=tuple(findings[path]),
            problems=tuple(wrong[path]),
        )
        for path in {*lines, *verdicts, *findings, *wrong}
        if os.path.isfile(path)  # noqa: PTH113 -- a target may be in an installed module
    }


def _file(workload: Workload, real: Callable[[str], str], scripts: Sequence[str]) -> str:
    """Give the real path of a target; a script is named as it is typed, in its own folder."""
    if workload.script is not None:
        name = program_name(workload.script)
        return next((each for each in scripts if os.path.basename(each) == name), real(name))  # noqa: PTH119
    return real(workload.file)


def _line_notes(workload: Workload, *, named: bool) -> Iterable[tuple[str, LineNote]]:
    """Yield path and note of each line that holds bytes at the peak, or for backward; with a name if it is `named`."""
    assert workload.estimate is not None
    tensors: defaultdict[tuple[str, int], list[AliveBuffer]] = defaultdict(list)
    for buffer in workload.estimate.at_peak:
        if buffer.category not in NOT_BY_LINE and buffer.path is not None and buffer.line is not None:
            tensors[buffer.path, buffer.line].append(buffer)
    at_peak: defaultdict[tuple[str, int], list[LineBytes]] = defaultdict(list)
    for each in workload.estimate.by_line:
        if each.path is not None and each.line is not None and each.nbytes:
            at_peak[each.path, each.line].append(each)
    saved = _saved_for_backward(workload.timeline) if workload.timeline is not None else {}
    most = workload.estimate.peak.requested.estimate
    for place in dict.fromkeys((*at_peak, *saved)):
        rows, nbytes = at_peak[place], saved.get(place, 0)
        text, details = f"{format_nbytes(nbytes)} {_SAVED}", f"**{workload.name}**: nothing at the peak"
        if rows:
            held = sum(row.nbytes for row in rows)
            what = rows[0].why or spaced(next(iter(rows[0].categories), ""))
            if place not in saved:
                nbytes, text = held, f"{format_nbytes(held)} {what}".rstrip()
            elif held > nbytes:
                nbytes, text = held, f"{text}, {format_nbytes(held)} at the peak"
            details = f"**{workload.name}**: {format_nbytes(held)} at the peak, {share(held, most)} of it"
        if place in saved:
            details += f"; {format_nbytes(saved[place])} {_SAVED} when most is"
        yield (
            place[0],
            LineNote(
                line=place[1],
                nbytes=nbytes,
                text=f"{workload.name}: {text}" if named else text,
                details=f"{details}\n\n{_tensor_table(tensors[place])}".rstrip(),
                is_notable=nbytes >= _NOTABLE * most,
            ),
        )


def _saved_for_backward(timeline: Timeline) -> dict[tuple[str, int], int]:
    """By path and line the bytes that are saved for backward at the moment when most bytes are, all lines together."""
    is_saved = [site.category == "activation" and site.line is not None for site in timeline.sites]
    live: dict[int, int] = {}
    nbytes = most = 0
    at_most: dict[int, int] = {}
    is_rising = False
    for event in timeline.events:
        buffer = event if event >= 0 else ~event
        if not is_saved[timeline.buffer_sites[buffer]]:
            continue
        if event >= 0:
            live[buffer] = timeline.nbytes[buffer]
            nbytes += timeline.nbytes[buffer]
            is_rising = is_rising or nbytes > most
        else:
            if is_rising and nbytes > most:
                most, at_most = nbytes, dict(live)
            is_rising = False
            nbytes -= live.pop(buffer)
    if nbytes > most:
        at_most = live
    by_line: defaultdict[tuple[str, int], int] = defaultdict(int)
    for buffer, size in at_most.items():
        site = timeline.sites[timeline.buffer_sites[buffer]]
        by_line[site.path or "", site.line or 0] += size
    return dict(by_line)


def _tensor_table(buffers: list[AliveBuffer]) -> str:
    """Give a row for tensors that are alike, in modules whose paths differ in numbers alone; most bytes first."""
    groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for each in buffers:
        module = ".".join("*" if part.isdigit() else part for part in (each.name or each.module).split("."))
        row = f"`{tensor_text(each.dtype, each.shape)}`", listed(spaced(each.category), each.why), module
        groups[row].append(each.nbytes)
    if not groups:
        return ""
    ordered = sorted(groups.items(), key=lambda item: -sum(item[1]))
    rows = [
        f"| {format_nbytes(sum(sizes))} | {len(sizes)} x {row[0]} | {row[1]} | {row[2]} |"
        for row, sizes in ordered[:_NUM_ROWS]
    ]
    rest = len(ordered) - _NUM_ROWS
    more = [f"\n{format_count(rest, 'more row')}"] if rest > 0 else []
    return "\n".join(["| bytes | tensors | kind | module |", "|---:|---|---|---|", *rows, *more])


def _heaviest(notes: list[LineNote]) -> Iterable[LineNote]:
    """Yield one note for each line: that of the Workload for which it holds most, with the details of all."""
    by_line: defaultdict[int, list[LineNote]] = defaultdict(list)
    for note in notes:
        by_line[note.line].append(note)
    for line, own in sorted(by_line.items()):
        most = max(own, key=lambda note: note.nbytes)
        details = "\n\n".join(note.details for note in own)
        yield LineNote(line, most.nbytes, most.text, details, any(note.is_notable for note in own))


def _verdict_note(workload: Workload) -> VerdictNote:
    assert workload.estimate is not None
    peak = workload.estimate.peak[workload.measure]
    where = workload.verdict.limit_name if workload.verdict else workload.gpu or ""
    optimizer = workload.optimizer if workload.mode == "train" else ""
    step = step_text(workload.mode, workload.batch, workload.dtype, optimizer, tokens_text(workload.estimate))
    categories = sorted(workload.estimate.categories.items(), key=lambda item: -item[1])
    held = listed(*(f"{format_nbytes(nbytes)} {spaced(name)}" for name, nbytes in categories if nbytes))
    rows = [f"**{workload.name}**: {step}", f"- {workload.measure}: {_interval(bounds(peak), peak.estimate)}"]
    if workload.measure == "device":
        rows.append(f"- torch.cuda.max_memory_reserved: {format_nbytes(workload.estimate.peak.reserved.estimate)}")
        rows.append(f"- torch.cuda.max_memory_allocated: {format_nbytes(workload.estimate.peak.allocated.estimate)}")
    rows.append(f"- at the peak: {held}")
    rows += [f"- assumed: {each.text}" for each in workload.assumptions]
    text = f"{format_nbytes(peak.estimate)} on {where}{_fits(workload)}" if where else format_nbytes(peak.estimate)
    return VerdictNote(
        qualname=workload.target.partition("::")[2].partition("(")[0] if workload.script is None else "",
        text=text,
        details="\n".join(rows),
        target=workload.target if workload.origin == "discovered" else "",
    )


def _interval(text: str, estimate: int) -> str:
    return f"{format_nbytes(estimate)}, between {text.replace(' to ', ' and ')}" if text else format_nbytes(estimate)


def _fits(workload: Workload) -> str:
    """`, fits to batch 69`; `, does not fit: at most batch 4`; the outcome alone where no other batch is known."""
    verdict = workload.verdict
    if verdict is None:
        return ""
    outcome = outcome_text(workload, verdict.outcome)
    own = [sweep for sweep in workload.sweep if sweep.dtype == workload.dtype and sweep.largest is not None]
    if not own or is_own_step(workload.script):
        return f", {outcome}"
    largest = largest_batch(own[0], "")
    if not largest:
        return f", {outcome}"
    return f", {outcome} to batch {largest}" if verdict.outcome == "fits" else f", {outcome}: at most batch {largest}"


def _place(problem: Problem) -> tuple[str, int | None]:
    """Give the last line of the program that a problem names, or else its own place."""
    if problem.code == NOT_ANALYSED and problem.traceback:
        path, _, line = problem.traceback[-1].rpartition(" in ")[0].rpartition(":")
        if path and line.isdigit():
            return path, int(line)
    return problem.path, problem.line

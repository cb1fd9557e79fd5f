"""The Comparison as the body of a comment in a pull or merge request, within the forge's limit.

The heading holds numbers only. Everything else consists of blocks of `memlint.report.formats.html_blocks`, which escape
every string of a Report.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from memlint.base.units import format_count, format_nbytes
from memlint.compare.comparison import BatchChange, Comparison, LineChange, WorkloadChange
from memlint.compare.headline import check_text, difference, headline, largest_text, percent
from memlint.report.formats.html_blocks import code, folded, joined, peak, ranks_and_streams, step, table
from memlint.report.model import Finding
from memlint.report.phrases import of_peak, place_text, ranks_text, saving, spaced

LIMIT = 60_000
"""Maximum number of characters: GitHub accepts 65,536, which include the marker of the comment."""
_ROWS = 100
"""Maximum number of rows in the table of workloads."""
_FEW = 20
"""Maximum number of rows of growth; the reports hold all of them."""
_FIRST = 5
"""Number of workloads, those that changed most, whose changes precede the findings."""
_MARKS = {"kept": "", "exceeded": "\u274c ", "uncertain": "\u26a0\ufe0f ", "unknown": ""}
_CUT = "<p>Details are left out, because the comment would be too long: see the summary of the job or the reports.</p>"


def render_body(comparison: Comparison, *, limit: int = LIMIT) -> str:
    """Return Markdown of at most `limit` characters that ends with a newline.

    If the text is too long, it first drops the folded details, from the last to the first, then rows of the tables from
    their ends, then all but the heading.
    """
    heading, foot = f"### memlint: {headline(comparison)}", _foot(comparison)
    room = limit - len(_body([heading, _CUT, foot]))
    if room < 0:
        return f"{heading}\n"[:limit]
    blocks = (*_tables(comparison), *([detail] for detail in _details(comparison)))
    return _body([heading, *_that_fit(blocks, room), foot])


def _body(blocks: Iterable[str]) -> str:
    return joined(blocks) + "\n"


def _that_fit(blocks: Iterable[Iterable[str]], room: int) -> Iterator[str]:
    """Yield the first blocks that together fit into `room`, and _CUT if there are others.

    Each block comes in all its forms, the longest first: the first form that fits is used.
    """
    for forms in blocks:
        fitting = next((form for form in forms if _nchars(form) <= room), None)
        if fitting is None:
            yield _CUT
            return
        room -= _nchars(fitting)
        yield fitting


def _nchars(block: str) -> int:
    return len(block) + len("\n\n") if block else 0


def _tables(comparison: Comparison) -> Iterator[Iterator[str]]:
    """Yield the table of what has changed and the folded one of what has not, each with fewer and fewer rows."""
    changed = sorted(filter(_has_news, comparison.workloads), key=_rank)
    unchanged = [change for change in comparison.workloads if not _has_news(change)]
    rows = [_row(change) for change in changed]
    quiet_rows = [(code(each.name), _step(each), _peak(each), _budget(each)) for each in unchanged]
    head, quiet_head = (
        ("workload", "step", "base", "head", "change", "largest batch", "budget"),
        ("workload", "step", "peak", "budget"),
    )
    title = f"{format_count(len(unchanged), 'workload')} unchanged"
    yield (table(head, rows, most=most) for most in range(_ROWS, -1, -1))
    yield (folded(title, table(quiet_head, quiet_rows, most=most)) for most in range(_ROWS, -1, -1))


def _rank(change: WorkloadChange) -> tuple[bool, bool, int]:
    """Return the sort key of a workload: not analysed, then budget exceeded, then the largest change of the peak."""
    nbytes = abs((change.nbytes_head or 0) - (change.nbytes_base or 0))  # the whole peak if the workload is new
    return change.state != "failed", not change.exceeds("error", "warning"), -nbytes


def _has_news(change: WorkloadChange) -> bool:
    """Return True if anything has changed."""
    return change.state != "unchanged" or any(check.outcome != "kept" for check in change.budget)


def _row(change: WorkloadChange) -> tuple[str, ...]:
    base, head = change.nbytes_base, change.nbytes_head
    start = code(change.name), _step(change), "" if base is None else format_nbytes(base)
    if change.state == "failed":
        return *start, "<b>not analysed</b>", code(change.head.error if change.head else ""), "", ""
    news: str = change.state
    if change.state == "recovered":
        news = f"not analysed in base: {code(change.base.error if change.base else '')}"
    elif base is not None and head is not None:
        news = f"<b>{difference(head - base)}</b> {percent(base, head)}"
    return *start, _peak(change), news, _batches(change), _budget(change)


def _step(change: WorkloadChange) -> str:
    sides = [facts for facts in (change.head, change.base) if facts is not None]
    facts = next((each for each in sides if each.mode), sides[0])  # a failed analysis may not know its step
    text = step(facts.mode, facts.batch, facts.dtype, facts.optimizer, facts.gpu, ranks_text(facts.ranks))
    return joined([text, *map(code, change.notes)], ", ")


def _peak(change: WorkloadChange) -> str:
    """Return the peak of head, with the bounds of the unknown part."""
    if change.head is None or change.head.peak is None:
        return ""
    does_not_fit = change.head.verdict is not None and change.head.verdict.outcome == "does not fit"
    return peak(change.head.peak[change.measure]) + ("<br>does not fit the GPU" if does_not_fit else "")


def _batches(change: WorkloadChange) -> str:
    several = len({each.gpu for each in change.largest}) > 1
    return "<br>".join(
        f"{code(each.dtype)}{f' on {code(each.gpu)}' if several else ''} {largest_text(change, each, 'none', ' to ')}"
        for each in change.largest
    )


def _budget(change: WorkloadChange) -> str:
    return "<br>".join(_MARKS[check.outcome] + check_text(check) for check in change.budget)


def _details(comparison: Comparison) -> Iterator[str]:
    """Yield folded blocks, with the first to be dropped at the end."""
    workloads = comparison.workloads
    changed = [change for change in workloads if change.lines or change.categories or change.modules]
    changed.sort(key=lambda change: -abs(change.change or 0))
    new = [*comparison.findings_new, *chain.from_iterable(change.findings_new for change in workloads)]
    certain = (change.findings_fixed for change in workloads if not change.may_hide_findings)
    fixed = [*comparison.findings_fixed, *chain.from_iterable(certain)]
    gone = [finding for change in workloads if change.may_hide_findings for finding in change.findings_fixed]
    yield from map(_what_changed, changed[:_FIRST])
    yield folded(format_count(len(new), "new finding"), _findings(new))
    yield folded(format_count(len(fixed), "finding") + " fixed", _findings(fixed))
    yield folded(format_count(len(gone), "finding") + " no longer reported", _findings(gone))
    yield from map(_what_changed, changed[_FIRST:])
    yield from map(_chart, changed)
    yield from map(_ranks, workloads)


def _ranks(change: WorkloadChange) -> str:
    content = ranks_and_streams(change.head.ranks, change.head.streams) if change.head else ""
    return folded(f"Ranks and streams of {code(change.name)}", content)


def _what_changed(change: WorkloadChange) -> str:
    categories = ", ".join(f"{spaced(each.category)} {difference(each.head - each.base)}" for each in change.categories)
    modules = [(*_amounts(each.base, each.head), code(each.module) or "no submodule") for each in change.modules]
    parts = (
        f"<p>By category: {categories}.</p>" if categories else "",
        table(("change", "base", "head", "line", "why", "source"), list(map(_line, change.lines)), most=_FEW),
        table(("change", "base", "head", "module"), modules, most=_FEW),
    )
    return folded(f"What changed in {code(change.name)}", joined(parts, "\n"))


def _line(line: LineChange) -> tuple[str, ...]:
    place = code(place_text(line.path, line.line, line.library)) or "no line"
    place += " in base" if line.path and not line.head else ""
    return *_amounts(line.base, line.head), place, code(line.why), code(line.source or line.module)


def _amounts(base: int, head: int) -> tuple[str, str, str]:
    return f"<b>{difference(head - base)}</b>", format_nbytes(base), format_nbytes(head)


def _findings(findings: Sequence[Finding]) -> str:
    rows = []
    for finding in findings:
        place = place_text(finding.path, finding.line, finding.library) if finding.path else finding.workload
        saved, fix = saving(finding.peak_change), finding.fix and f"help: {finding.fix}"
        lines = (code(finding.message), f"saves {saved} {of_peak(finding.measure)}" if saved else "", code(fix))
        rows.append((finding.severity, code(finding.code), code(place), joined(lines, "<br>")))
    return table(("severity", "code", "place", "message"), rows)


def _chart(change: WorkloadChange) -> str:
    """Return a Mermaid chart of the device peak by batch, which takes only numbers from a Report."""
    both = [each for each in change.batches if each.base is not None and each.head is not None]
    if len(both) < 3 or all(each.base == each.head for each in both):
        return ""
    # Markdown between the tags is interpreted again after empty lines.
    return f"""<details><summary>Peak by batch size of {code(change.name)}</summary>

```mermaid
xychart-beta
    title "Peak GPU memory by batch size, base and head"
    x-axis "batch" [{", ".join(str(each.batch) for each in both)}]
    y-axis "GiB"
    line [{_points(both, "base")}]
    line [{_points(both, "head")}]
```

</details>"""


def _points(batches: Sequence[BatchChange], side: str) -> str:
    return ", ".join(f"{getattr(each, side) / 2**30:.2f}" for each in batches)


def _foot(comparison: Comparison) -> str:
    """Explain the numbers and the limitations of the comparison, in a block in which Markdown is not interpreted."""
    head = comparison.head
    commit = f" for {code(head.commit[:12])}" if head.commit else ""
    made_by = comparison.tool + (f", torch {code(head.torch)}" if head.torch else "")
    about = f"Estimates of GPU memory, made without a GPU{commit}: {made_by}. Bounds cover what cannot be known."
    return f"<p><sub>{'<br>'.join([about, *map(code, comparison.notes)])}</sub></p>"

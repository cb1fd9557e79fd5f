"""The Comparison for a terminal: the verdict, what grew in each Workload, and what did not change."""

from collections.abc import Iterator, Sequence

from memlint.base.units import Measure, format_count, format_nbytes
from memlint.compare.comparison import BudgetCheck, Comparison, Facts, Side, WorkloadChange
from memlint.compare.headline import check_text, difference, headline, largest_text, only_side, percent
from memlint.report.escaping import for_log
from memlint.report.model import Finding
from memlint.report.phrases import MEASURES, NO_MODULE, place_text, spaced, step_text, tensor_text
from memlint.report.text_style import TextStyle, cut, table

_FEW = 3
"""Rows of Buffers and modules without -v: source lines tell more."""
_NO_LINE = "no line"


def render_text(comparison: Comparison, paint: TextStyle) -> str:
    """Return the Comparison as text that ends with a newline."""
    comparison = for_log(comparison)
    shown = [change for change in comparison.workloads if change.state != "unchanged" or change.budget]
    unchanged = [change.name for change in comparison.workloads if change.state == "unchanged" and not change.budget]
    blocks = [
        "\n".join(_head(comparison, paint)),
        *("\n".join(_workload(change, paint)) for change in shown),
        "\n".join(_findings(comparison.findings_new, comparison.findings_fixed, paint, "")),
        f"Unchanged: {', '.join(unchanged)}" if unchanged else "",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _head(comparison: Comparison, paint: TextStyle) -> Iterator[str]:
    sides = " -> ".join(_side(side) for side in (comparison.base, comparison.head) if side is not None)
    color = "red" if comparison.status else "yellow" if comparison.exceeded else None
    yield f"{sides}: {paint(headline(comparison), color, bold=True)}"
    yield from (paint(f"  {note}", dim=True) for note in comparison.notes)


def _side(side: Side) -> str:
    commit = f" ({side.commit[:9]})" if side.commit and not side.commit.startswith(side.label) else ""
    return side.label + commit


def _workload(change: WorkloadChange, paint: TextStyle) -> Iterator[str]:
    base, head = change.base, change.head
    yield _headline(change, paint)
    steps = [step_text(each.mode, each.batch, each.dtype, each.optimizer, each.gpu) for each in (head, base) if each]
    yield from (paint(f"  {step}", dim=True) for step in list(filter(None, steps))[:1])
    yield from (f"  {note}" for note in change.notes)
    if head is not None and head.error is not None:
        yield f"  {paint('error', 'red', bold=True)}: {head.error}"
    elif base is not None and base.error is not None:
        yield f"  {paint('error in base', 'yellow', bold=True)}: {base.error}"
    yield from (_check(check, paint) for check in change.budget)
    if base is not None and head is not None and None not in (base.peak, head.peak):
        yield from _peaks(base, head, change.measure)
        yield from _changes_at_peak(change, paint)
    yield from _largest(change, paint)
    yield from _findings(
        change.findings_new, change.findings_fixed, paint, "  ", are_fixed=not change.may_hide_findings
    )


def _headline(change: WorkloadChange, paint: TextStyle) -> str:
    name = paint(change.name if change.name == change.target else f"{change.name} ({change.target})", bold=True)
    base, head = change.nbytes_base, change.nbytes_head
    if base is None or head is None:
        state = {"failed": "not analysed", "recovered": "not analysed in base"}.get(change.state, change.state)
        where = " in base" if change.state == "failed" else ""
        nbytes = head if head is not None else base
        return f"{name}  {state}" + (f", {format_nbytes(nbytes)}{where}" if nbytes is not None else "")
    if base == head:
        return f"{name}  {format_nbytes(head)}  unchanged"
    more = " ".join(filter(None, (difference(head - base), percent(base, head))))
    color = "red" if head > base else "green"
    return f"{name}  {format_nbytes(base)} -> {format_nbytes(head)}  {paint(more, color, bold=True)}"


def _check(check: BudgetCheck, paint: TextStyle) -> str:
    color = {"kept": "green", "exceeded": "red" if check.level == "error" else "yellow"}.get(check.outcome, "yellow")
    return f"  budget: {paint(check_text(check), color)}"


def _peaks(base: Facts, head: Facts, measure: Measure) -> Iterator[str]:
    assert base.peak is not None
    assert head.peak is not None
    rows = [("", "base", "head", "change")]
    for name in (measure,) if measure == "requested" else MEASURES:
        before, after = base.peak[name].estimate, head.peak[name].estimate
        rows.append((f"  {name}", format_nbytes(before), format_nbytes(after), difference(after - before)))
    yield from ("", *table(rows, ("left", "right", "right", "right")))


def _changes_at_peak(change: WorkloadChange, paint: TextStyle) -> Iterator[str]:
    """Yield the changes at the peak, by line, category, module and kind of Buffer."""
    lines = [
        (
            difference(each.head - each.base),
            (place_text(each.path, each.line, each.library) or _NO_LINE) + ("" if each.head else " in base"),
            each.why,
            each.source or each.module,
        )
        for each in change.lines
    ]
    buffers = [
        (
            difference(each.head - each.base),
            f"{each.num_base} -> {each.num_head} x",
            tensor_text(each.dtype, each.shape),
            spaced(each.category),
            each.name or place_text(each.path, each.line, each.library) or _NO_LINE,
            each.op,
        )
        for each in change.buffers
    ]
    sides: list[tuple[str, Sequence[tuple[str, ...]], int]] = [
        ("By category", [(difference(each.head - each.base), spaced(each.category)) for each in change.categories], 9),
        ("By source line", lines, 8),
        (
            "By module",
            [(difference(each.head - each.base), each.module or NO_MODULE) for each in change.modules],
            _FEW,
        ),
        ("By kind of tensor", buffers, _FEW),
    ]
    for title, rows, few in sides:
        shown = paint.first_rows(rows, few)
        if shown:
            yield from ("", paint(f"  {title}, at the peak", bold=True))
            yield from (
                cut(f"  {line}", paint.width) for line in table(shown, ("right", *("left",) * (len(shown[0]) - 1)))
            )
            yield from paint.rest(len(rows) - len(shown))


def _largest(change: WorkloadChange, paint: TextStyle) -> Iterator[str]:
    if change.largest:
        yield from ("", paint("  Largest batch that fits", bold=True))
        side = f" ({only_side(change)})" if only_side(change) else ""
        rows = [
            (f"  {each.dtype}", each.gpu_title, largest_text(change, each, "none known", " -> ") + side)
            for each in change.largest
        ]
        yield from table(rows, ("left", "left", "left"))


def _findings(
    new: Sequence[Finding], fixed: Sequence[Finding], paint: TextStyle, indent: str, *, are_fixed: bool = True
) -> Iterator[str]:
    gone = (
        ("Fixed", "green", fixed)
        if are_fixed
        else ("No longer reported, maybe because the peak changed", "yellow", fixed)
    )
    for title, color, findings in (("New", "yellow", new), gone):
        if findings:
            yield from ("", indent + paint(f"{title}: {format_count(len(findings), 'finding')}", color, bold=True))
        for finding in findings:
            place = place_text(finding.path, finding.line, finding.library)
            yield f"{indent}  {place}: {finding.code} {finding.message}"

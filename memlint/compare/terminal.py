"""The Comparison for a terminal: the verdict, what grew in each workload, and what did not change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.base.units import format_count, format_nbytes
from memlint.compare.headline import check_text, headline, only_side, percent, signed
from memlint.report.escaping import for_log
from memlint.report.phrases import MEASURES, place_text, tensor_text
from memlint.report.text_style import TextStyle, cut, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memlint.compare.comparison import BudgetCheck, Comparison, Facts, Side, WorkloadChange
    from memlint.report.model import Finding
    from memlint.report.text_style import TextStyle

_FEW = 3
"""Of the kinds of Buffers and modules without -v: lines say most."""
_NO_LINE = "no line"


def render_text(comparison: Comparison, paint: TextStyle) -> str:
    """The Comparison as text that ends with a newline."""
    comparison = for_log(comparison)
    told = [change for change in comparison.workloads if change.state != "unchanged" or change.budget]
    quiet = [change for change in comparison.workloads if change.state == "unchanged" and not change.budget]
    blocks = [
        "\n".join(_head(comparison, paint)),
        *("\n".join(_workload(change, paint)) for change in told),
        "\n".join(_findings(comparison.findings_new, comparison.findings_fixed, paint, "")),
        f"Unchanged: {', '.join(change.name for change in quiet)}" if quiet else "",
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
    yield _headline(change, paint)
    step = next((step for facts in (change.head, change.base) if facts and (step := _step(facts))), "")
    if step:
        yield paint(f"  {step}", dim=True)
    yield from (f"  {note}" for note in change.notes)
    if change.head is not None and change.head.error is not None:
        yield f"  {paint('error', 'red', bold=True)}: {change.head.error}"
    elif change.base is not None and change.base.error is not None:
        yield f"  {paint('error in base', 'yellow', bold=True)}: {change.base.error}"
    yield from (_check(check, paint) for check in change.budget)
    if change.base is not None and change.head is not None and None not in (change.base.peak, change.head.peak):
        yield from _peaks(change.base, change.head, change.measure)
        yield from _grown(change, paint)
    yield from _largest(change, paint)
    yield from _findings(change.findings_new, change.findings_fixed, paint, "  ")


def _headline(change: WorkloadChange, paint: TextStyle) -> str:
    name = change.name if change.name == change.target else f"{change.name} ({change.target})"
    base, head = change.nbytes_base, change.nbytes_head
    if base is not None and head is not None:
        size = format_nbytes(head) if base == head else f"{format_nbytes(base)} -> {format_nbytes(head)}"
        color = "red" if head > base else "green"
        more = paint(" ".join(filter(None, (signed(head - base), percent(base, head)))), color, bold=True)
        return f"{paint(name, bold=True)}  {size}  {more if base != head else 'unchanged'}"
    said = {"failed": "not analysed", "recovered": "not analysed in base"}.get(change.state, change.state)
    where = " in base" if change.state == "failed" else ""
    known = head if head is not None else base
    return f"{paint(name, bold=True)}  {said}" + (f", {format_nbytes(known)}{where}" if known is not None else "")


def _step(facts: Facts) -> str:
    known = (
        f"{facts.mode} step" if facts.mode else "",
        f"batch {facts.batch}" if facts.batch else "",
        facts.dtype or "",
        facts.optimizer or "",
        facts.gpu or "",
    )
    return ", ".join(fact for fact in known if fact)


def _check(check: BudgetCheck, paint: TextStyle) -> str:
    color = {"kept": "green", "exceeded": "red" if check.level == "error" else "yellow"}.get(check.outcome, "yellow")
    return f"  budget: {paint(check_text(check), color)}"


def _peaks(base: Facts, head: Facts, measure: str) -> Iterator[str]:
    rows = [("", "base", "head", "change")]
    for name in (measure,) if measure == "requested" else MEASURES:
        before, after = getattr(base.peak, name).estimate, getattr(head.peak, name).estimate
        rows.append((f"  {name}", format_nbytes(before), format_nbytes(after), signed(after - before)))
    yield from ("", *table(rows, ("left", "right", "right", "right")))


def _grown(change: WorkloadChange, paint: TextStyle) -> Iterator[str]:
    """What changed at the peak, from several sides."""
    thorough = paint.verbosity > 0
    sides: list[tuple[str, list[tuple[str, ...]], int]] = [
        ("By category", [(_amount(each), each.category.replace("_", " ")) for each in change.categories], 9),
        (
            "By source line",
            [
                (
                    _amount(each),
                    (place_text(each.path, each.line) or _NO_LINE) + ("" if each.head else " in base"),
                    each.why,
                    each.source or each.module,
                )
                for each in change.lines
            ],
            8,
        ),
        ("By module", [(_amount(each), each.module or "(no submodule)") for each in change.modules], _FEW),
        (
            "By kind of tensor",
            [
                (
                    _amount(each),
                    f"{each.num_base} -> {each.num_head} x",
                    tensor_text(each.dtype, each.shape),
                    each.category.replace("_", " "),
                    each.name or place_text(each.path, each.line) or _NO_LINE,
                    each.op,
                )
                for each in change.buffers
            ],
            _FEW,
        ),
    ]
    for title, rows, few in sides:
        if rows:
            shown = rows if thorough else rows[:few]
            yield from ("", paint(f"  {title}, at the peak", bold=True))
            lines = table(shown, ("right", *("left",) * (len(shown[0]) - 1)))
            yield from (cut(f"  {line}", paint.width) for line in lines)
            if len(rows) > len(shown):
                yield paint(f"    and {len(rows) - len(shown)} more: see them with -v", dim=True)


def _amount(change: object) -> str:
    return signed(change.head - change.base)  # type: ignore[attr-defined]


def _largest(change: WorkloadChange, paint: TextStyle) -> Iterator[str]:
    if change.largest:
        yield from ("", paint("  Largest batch that fits", bold=True))
        only = only_side(change)
        rows = []
        for each in change.largest:
            before, after = (str(batch) if batch is not None else "none known" for batch in (each.base, each.head))
            if only:
                said = f"{before if each.head is None else after} ({only})"
            else:
                said = before if before == after else f"{before} -> {after}"
            rows.append((f"  {each.dtype}", each.gpu_title, said))
        yield from table(rows, ("left", "left", "left"))


def _findings(new: Sequence[Finding], fixed: Sequence[Finding], paint: TextStyle, indent: str) -> Iterator[str]:
    for title, color, findings in (("New", "yellow", new), ("Fixed", "green", fixed)):
        if findings:
            said = f"{title}: {format_count(len(findings), 'finding')}"
            yield from ("", indent + paint(said, color, bold=True))
        for finding in findings:
            place = place_text(finding.path, finding.line)
            yield f"{indent}  {place}: {finding.code} {finding.message}"

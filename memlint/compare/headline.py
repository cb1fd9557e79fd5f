"""Phrases for a Comparison. They take only numbers from a Report, so any renderer may use them without escaping."""

from collections import Counter

from memlint.base.units import format_count, format_nbytes
from memlint.compare.comparison import BudgetCheck, Comparison, LargestBatch, WorkloadChange
from memlint.report.phrases import listed, signed


def headline(comparison: Comparison) -> str:
    """Return the verdict in one line: budgets first, then failures, then the peaks, then other changes."""
    workloads = [change for change in comparison.workloads if change.state != "removed"]
    errors, warnings = (sum(change.exceeds(level) for change in comparison.workloads) for level in ("error", "warning"))
    states = Counter(change.state for change in comparison.workloads)
    new = len(comparison.findings_new) + sum(len(change.findings_new) for change in comparison.workloads)
    return listed(
        f"budget exceeded in {_of(errors, workloads)}" if errors else "",
        f"budget exceeded in {_of(warnings, workloads)} (warning)" if warnings else "",
        f"{format_count(states['failed'], 'workload')} not analysed" if states["failed"] else "",
        f"{format_count(states['recovered'], 'workload')} not analysed in base" if states["recovered"] else "",
        _peaks(comparison, workloads),
        format_count(states["new"], "new workload") if states["new"] and comparison.base is not None else "",
        f"{format_count(states['removed'], 'workload')} removed" if states["removed"] else "",
        format_count(new, "new finding") if new else "",
    )


def _peaks(comparison: Comparison, workloads: list[WorkloadChange]) -> str:
    changed = [change for change in workloads if change.change]
    compared = [change for change in workloads if change.change is not None]
    if changed:
        most = max(changed, key=lambda change: abs(change.change or 0))
        kind = "peak memory" if most.measure == "requested" else "peak GPU memory"
        up_to = "up to " if len(changed) > 1 else ""
        return f"{kind} {up_to}{difference(most.change or 0)} in {_of(len(changed), workloads)}"
    if compared:
        return f"peak memory unchanged in {format_count(len(compared), 'workload')}"
    if comparison.base is None and workloads:
        return f"{format_count(len(workloads), 'workload')}, nothing to compare with"
    return "" if comparison.workloads else "no workloads to compare"


def _of(number: int, workloads: list[WorkloadChange]) -> str:
    return f"{number} of {format_count(len(workloads), 'workload')}"


def only_side(change: WorkloadChange) -> str:
    """Return the only side that has an estimate: `new`, `removed`, `base` or `head`; empty if both have one."""
    if change.change is not None:
        return ""
    return {"failed": "base", "recovered": "head"}.get(change.state, change.state)


def largest_text(change: WorkloadChange, largest: LargestBatch, unknown: str, to: str) -> str:
    """Return the largest batch that fits in base and in head, or on the only side that has one."""
    base, head = (unknown if batch is None else str(batch) for batch in (largest.base, largest.head))
    if only_side(change):
        return base if largest.head is None else head
    return head if base == head else f"{base}{to}{head}"


def difference(nbytes: int) -> str:
    """Return a change of bytes as text: `+1.41 GiB`, `-300 MiB` or `0`."""
    return signed(nbytes) if nbytes else "0"


def percent(base: int, head: int) -> str:
    """Return the change as a share of base, such as `(+12.5%)`; empty if base is 0."""
    return f"({100 * (head - base) / base:+.1f}%)" if base and head != base else ""


def check_text(check: BudgetCheck) -> str:
    """Return one limit of a budget and the figure compared with it: `max 24.0 GiB exceeded (45.0 GiB)`."""
    in_percent = check.rule == "max-increase-percent"
    limit = f"{check.limit:g}%" if in_percent else format_nbytes(int(check.limit))
    outcomes = {"uncertain": "may be exceeded", "unknown": "is unknown without a peak in base"}
    text = f"{check.rule} {limit} {outcomes.get(check.outcome, check.outcome)}"
    if check.actual is None:
        return text
    if in_percent:
        return f"{text} ({check.actual:+.1f}%)"
    return f"{text} ({(format_nbytes if check.rule == 'max' else difference)(int(check.actual))})"

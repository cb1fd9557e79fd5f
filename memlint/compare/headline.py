"""How a Comparison is put into words. Nothing here comes from a Report but numbers, so any renderer may use it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from memlint.base.units import format_count, format_nbytes

if TYPE_CHECKING:
    from memlint.compare.comparison import BudgetCheck, Comparison, WorkloadChange


def headline(comparison: Comparison) -> str:
    """The verdict in one line: budgets first, then what failed, then the peaks, then what else changed."""
    workloads = [change for change in comparison.workloads if change.state != "removed"]
    exceeded = {level: _exceeded(comparison, level) for level in ("error", "warning")}
    states = Counter(change.state for change in comparison.workloads)
    new = len(comparison.findings_new) + sum(len(change.findings_new) for change in comparison.workloads)
    parts = [
        f"budget exceeded in {_of(exceeded['error'], workloads)}" if exceeded["error"] else "",
        f"budget exceeded in {_of(exceeded['warning'], workloads)} (warning)" if exceeded["warning"] else "",
        f"{format_count(len(comparison.failed), 'workload')} not analysed" if comparison.failed else "",
        f"{format_count(states['recovered'], 'workload')} not analysed in base" if states["recovered"] else "",
        _peaks(comparison, workloads),
        format_count(states["new"], "new workload") if states["new"] and comparison.base is not None else "",
        f"{format_count(states['removed'], 'workload')} removed" if states["removed"] else "",
        format_count(new, "new finding") if new else "",
    ]
    return ", ".join(part for part in parts if part)


def _exceeded(comparison: Comparison, level: str) -> int:
    return sum(
        any(check.outcome == "exceeded" and check.level == level for check in change.budget)
        for change in comparison.workloads
    )


def _peaks(comparison: Comparison, workloads: list[WorkloadChange]) -> str:
    changed = [change for change in workloads if change.change]
    compared = [change for change in workloads if change.change is not None]
    if changed:
        most = max(changed, key=lambda change: abs(change.change or 0))
        kind = "peak memory" if most.measure == "requested" else "peak GPU memory"
        up_to = "up to " if len(changed) > 1 else ""
        return f"{kind} {up_to}{signed(most.change or 0)} in {_of(len(changed), workloads)}"
    if compared:
        return f"peak memory unchanged in {format_count(len(compared), 'workload')}"
    if comparison.base is None and workloads:
        return f"{format_count(len(workloads), 'workload')}, nothing to compare with"
    return "" if comparison.workloads else "no workloads to compare"


def _of(number: int, workloads: list[WorkloadChange]) -> str:
    return f"{number} of {format_count(len(workloads), 'workload')}"


def only_side(change: WorkloadChange) -> str:
    """`new`, `removed`, `base` or `head`: the side that alone has what was estimated; empty where both have it."""
    if change.change is not None:
        return ""
    return {"failed": "base", "recovered": "head"}.get(change.state, change.state)


def signed(nbytes: int) -> str:
    """`+1.41 GiB`, `-300 MiB` or `0`."""
    return f"{'+' if nbytes > 0 else ''}{format_nbytes(nbytes)}" if nbytes else "0"


def percent(base: int, head: int) -> str:
    """The change as a share of base, such as `(+12.5%)`; empty where base is nothing."""
    return f"({100 * (head - base) / base:+.1f}%)" if base and head != base else ""


def check_text(check: BudgetCheck) -> str:
    """One limit of a budget, and what is held against it: `max 24.0 GiB exceeded (45.0 GiB)`."""
    in_percent = check.rule == "max-increase-percent"
    limit = f"{check.limit:g}%" if in_percent else format_nbytes(int(check.limit))
    said = {"uncertain": "may be exceeded", "unknown": "cannot be told without a peak in base"}.get(
        check.outcome, check.outcome
    )
    if check.actual is None:
        return f"{check.rule} {limit} {said}"
    if in_percent:
        actual = f"{check.actual:+.1f}%"
    else:
        actual = format_nbytes(int(check.actual)) if check.rule == "max" else signed(int(check.actual))
    return f"{check.rule} {limit} {said} ({actual})"

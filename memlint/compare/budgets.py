"""Whether the budget of a Workload allows what it takes, and how much more than before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.base.limits import outcome
from memlint.compare.comparison import BudgetCheck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.compare.comparison import BudgetOutcome, Facts
    from memlint.report.model import Budget

_OUTCOMES: dict[str, BudgetOutcome] = {"fits": "kept", "does not fit": "exceeded", "uncertain": "uncertain"}


def checks(budget: Budget | None, base: Facts | None, head: Facts | None, measure: str) -> list[BudgetCheck]:
    """One for each limit of `budget`; none where head has no peak.

    As in `memlint check` the most is exceeded only where even the low end of the interval is, so that what cannot be
    known fails no run. An increase is the change of the estimates: what cannot be known is the same on both sides.
    """
    if budget is None or head is None or head.peak is None:
        return []
    return list(_checks(budget, base, head, measure))


def _checks(budget: Budget, base: Facts | None, head: Facts, measure: str) -> Iterator[BudgetCheck]:
    after = getattr(head.peak, measure)
    if budget.max is not None:
        kept = _OUTCOMES[outcome(after.low, after.high, budget.max)]
        yield BudgetCheck(rule="max", limit=budget.max, actual=after.estimate, outcome=kept, level=budget.level)
    before = getattr(base.peak, measure).estimate if base is not None and base.peak is not None else None
    increase = None if before is None else after.estimate - before
    percent = None if before is None or increase is None else 100 * increase / max(before, 1)
    for rule, limit, actual in (
        ("max-increase", budget.max_increase, increase),
        ("max-increase-percent", budget.max_increase_percent, percent),
    ):
        if limit is not None:
            allowed: BudgetOutcome = "unknown" if actual is None else "kept" if actual <= limit else "exceeded"
            yield BudgetCheck(rule=rule, limit=limit, actual=actual, outcome=allowed, level=budget.level)  # type: ignore[arg-type]

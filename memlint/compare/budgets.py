"""Whether the budget of a Workload allows what it takes, and how much more than before."""

from __future__ import annotations

from memlint.compare.comparison import BudgetCheck, BudgetOutcome, BudgetRule, Facts
from memlint.report.model import Budget, Measure


def checks(budget: Budget | None, base: Facts | None, head: Facts | None, measure: Measure) -> list[BudgetCheck]:
    """One for each limit of `budget`; none where head has no peak.

    As in `memlint check` the most is exceeded only where even the low end of the interval is, so that what cannot be
    known fails no run. An increase is the change of the estimates: what cannot be known is the same on both sides.
    """
    if budget is None or head is None or head.peak is None:
        return []
    after = head.peak[measure]
    before = base.peak[measure].estimate if base is not None and base.peak is not None else None
    increase = None if before is None else after.estimate - before
    percent = None if before is None or increase is None else 100 * increase / max(before, 1)
    limits: list[tuple[BudgetRule, float | None, float | None, float | None]] = [
        ("max", budget.max, after.estimate, after.low),
        ("max-increase", budget.max_increase, increase, increase),
        ("max-increase-percent", budget.max_increase_percent, percent, percent),
    ]
    made = []
    for rule, limit, actual, least in limits:
        if limit is None:
            continue
        outcome: BudgetOutcome = "unknown"
        if least is not None:
            outcome = "exceeded" if least > limit else "kept"
        if rule == "max" and outcome == "kept" and after.high > limit:
            outcome = "uncertain"
        made.append(BudgetCheck(rule=rule, limit=limit, actual=actual, outcome=outcome, level=budget.level))
    return made

"""The part of source rules that looks at traced steps: what each step adds to memory, or keeps from the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.lint.diagnostics import BrokenRule
from memlint.lint.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlint.lint.rule import Context, Finding


def looks_at_steps(rule: Rule) -> bool:
    """Whether a rule of a Source also looks at traced steps."""
    return type(rule).check_steps is not Rule.check_steps


def step_findings(context: Context, rules: Iterable[Rule]) -> list[Finding]:
    """Run `check_steps` of the rules that have one; findings by code, suppressed or not."""
    findings: list[Finding] = []
    for rule in sorted(rules, key=lambda rule: rule.code):
        if looks_at_steps(rule):
            try:
                findings += rule.check_steps(context.timeline, context)
            except (Exception, RecursionError) as error:
                findings.append(BrokenRule.of_rule(rule, error, context.workload.path))
    return findings

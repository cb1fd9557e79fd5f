"""Fourth stage of `memlint check`: what only the whole run knows.

Comments that suppress nothing, findings that are known, rules that failed again and again, files without a Workload.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.base.errors import NO_MODULE_FOUND, TargetError
from memlint.commands.check.answers import Answers
from memlint.commands.check.source_findings import ChosenRules, SourceFindings
from memlint.commands.check.targets import failure
from memlint.commands.likely_commands import with_commands
from memlint.lint.diagnostics import BrokenRule, UnusedSuppression
from memlint.lint.rule import Severity, SourceRule, TraceRule
from memlint.lint.suppression import codes_of, unused, without_failed
from memlint.report import model as report
from memlint.report.from_rules import finding_of
from memlint.report.model import Finding, Skipped, Stale, Workload
from memlint.report.paths import relative
from memlint.source.scripts import is_script
from memlint.source.text import source_at

if TYPE_CHECKING:
    from memlint.lint.baseline import Baseline


@dataclass(frozen=True, slots=True)
class Settled:
    """The contents of the Report."""

    workloads: tuple[Workload, ...]
    findings: tuple[Finding, ...]
    """In a fixed order, with paths relative to the current directory, or as they were typed."""
    skipped: tuple[Skipped, ...]
    baseline: report.Baseline | None


def settle(
    arguments: Iterable[str],
    chosen: Sequence[ChosenRules],
    source: SourceFindings,
    answers: Answers,
    baseline: Baseline | None,
    *,
    cache: bool,
) -> Settled:
    """Settle the findings of all targets, of which `arguments` were typed; those in `baseline` are left out.

    With `cache` what a project is searched for is kept.
    """
    failures, skipped = _without_workloads(answers)
    requests = (request for rules in chosen for request in rules.target.requests)
    workloads = tuple(with_commands((*answers.workloads, *failures), requests, answers.attempts, cache=cache))
    if any(rules.target.settings.rule_paths and not rules.rule_paths for rules in chosen):
        skipped.insert(0, Skipped(reason="the rules in rule-paths were not loaded, because of --no-exec"))
    is_complete = answers.executed and not any(workload.error for workload in workloads)
    if is_complete:
        skipped += _idle_budgets(arguments, chosen, workloads)
    findings = [*_held_against_runs(source.findings, chosen, answers), *answers.findings]
    for rules in chosen if answers.executed else ():
        findings += _unused_in_traces(rules, answers)
    files = [file for rules in chosen for file in rules.target.files]
    final = _final(_without_needed_comments(findings, chosen, answers), files)
    known = None
    if baseline is not None:
        final, known = _without_known(final, baseline, chosen, answers, is_complete=is_complete)
    return Settled(workloads, tuple(final), (*answers.skipped, *skipped), known)


def _held_against_runs(
    findings: Iterable[Finding], chosen: Sequence[ChosenRules], answers: Answers
) -> Iterator[Finding]:
    """Source findings; of a script that was run, those that another rule computes of steps are no more than notes.

    Where that rule speaks of the same line, they are left out.
    """
    source_rules = (rule for rules in chosen for rule in rules.rules if isinstance(rule, SourceRule))
    codes = {rule.code: rule.traced_as for rule in source_rules if rule.traced_as}
    ran = any(workload.script is not None and workload.error is None for workload in answers.workloads)
    of_scripts = {
        os.path.realpath(file)
        for rules in chosen
        if any(request.script is not None for request in rules.target.requests)
        for file in rules.target.files
    }
    computed = {(os.path.realpath(each.path), each.line, each.code) for each in answers.traced}
    for finding in findings:
        path, traced_as = os.path.realpath(finding.path), codes.get(finding.code, "")
        if not (ran and traced_as and path in of_scripts):
            yield finding
        elif (path, finding.line, traced_as) not in computed:
            message = f"{finding.message} The steps that were run gain nothing by the fix, or do not come here."
            yield finding.model_copy(update={"severity": Severity.NOTE, "message": message})


def _without_workloads(answers: Answers) -> tuple[list[Workload], list[Skipped]]:
    """Files that were named and gave no Workload: failures if nothing else was analysed, else only skipped."""
    hint = "Name the class or function that gives the model, as in model.py::build, or declare a memlint_workload."
    reason = NO_MODULE_FOUND
    if any(workload.error is None for workload in answers.workloads):
        per_file = [left_out or [Skipped(path=r.path, reason=reason, hint=hint)] for r, left_out in answers.empty]
        return [], [entry for entries in per_file for entry in entries]
    failures: list[Workload] = []
    for request, left_out in answers.empty:
        reasons = "; ".join(
            entry.reason if entry.reason.startswith(f"{entry.name} ") else f"{entry.name}: {entry.reason}"
            for entry in left_out
        )
        message = f"no model in it can be built: {reasons}" if left_out else reason
        source = source_at(request.path) if request.path and not left_out else None
        run = f"This is a script: type memlint run {request.target}." if source and is_script(source) else hint
        if left_out:
            skeleton = (
                f"memlint check {request.target} --init writes a declaration with their arguments, to be filled in."
            )
            run = next((entry.hint for entry in left_out if entry.hint), skeleton)
        failures.append(failure(request.target, TargetError(message, run)))
    return failures, []


def _idle_budgets(
    arguments: Iterable[str], chosen: Iterable[ChosenRules], workloads: Iterable[Workload]
) -> Iterator[Skipped]:
    """Budgets of projects that were analysed as a whole and have no Workload of that name."""
    whole = {Path(argument).resolve() for argument in arguments if Path(argument).is_dir()}
    names = [workload.name for workload in workloads]
    budgets = {name for rules in chosen if rules.target.root in whole for name in rules.target.settings.budget}
    for name in sorted(budgets - {"*", *names}):
        close = get_close_matches(name, names, n=1)
        yield Skipped(
            name=f"budget {name}",
            reason="no workload that was analysed has this name",
            hint=f"Did you mean {close[0]!r}?" if close else "Name a workload that is declared, or write '*' for all.",
        )


def _unused_in_traces(rules: ChosenRules, answers: Answers) -> list[Finding]:
    """Comments in a target's files for rules of traced steps that found nothing there, if all Workloads ran."""
    only_one = any(request.path and request.qualname for request in rules.target.requests)
    if only_one or any(workload.error for workload in answers.workloads):
        return []
    if UnusedSuppression.code not in {rule.code for rule in rules.rules}:
        return []
    codes = without_failed(codes_of(rules.rules, TraceRule), answers.traced)
    files = {os.path.realpath(file) for file in rules.target.files}
    comments: list[Finding] = []
    for path, lines in answers.traced_lines.items():
        source = source_at(path) if os.path.realpath(path) in files else None
        if source is not None:
            comments += map(finding_of, unused(source, answers.traced, codes, lines))
    return rules.unignored(comments)


def _without_needed_comments(findings: list[Finding], chosen: Iterable[ChosenRules], answers: Answers) -> list[Finding]:
    """Remove reports about comments that the text does not need, but traced steps do, or could."""
    codes = {code for rules in chosen for code in rules.of_both}
    needed: set[tuple[str, int, int, str]] = set()
    for path in {finding.path for finding in answers.traced if finding.code in codes}:
        source = source_at(path)
        for comment in source.suppressions if source is not None else ():
            needed |= {
                (os.path.realpath(path), comment.line, comment.column, finding.code)
                for finding in answers.traced
                if finding.path == path
                and finding.code in comment.codes
                and comment.first <= finding.line <= comment.last
            }
    is_complete = answers.executed and not any(workload.error for workload in answers.workloads)

    def is_needed(comment: Finding) -> bool:
        if comment.code != UnusedSuppression.code or comment.subject not in codes:
            return False
        place = (os.path.realpath(comment.path), comment.line, comment.column, comment.subject)
        return not is_complete or place in needed

    return [finding for finding in findings if not is_needed(finding)]


def _final(findings: Iterable[Finding], files: Iterable[Path]) -> list[Finding]:
    """The findings in order, each once, with paths as people write them.

    Where a rule has computed bytes of a traced step, what it says of the text of that line is left out. A rule that
    fails is reported once, however often it did.
    """
    records = relative([finding.model_dump() for finding in findings], Path.cwd(), files)
    written = [Finding.model_validate(record) for record in records]
    computed = {(each.path, each.line, each.code) for each in written if each.confidence != "heuristic"}
    kept = [
        each for each in written if each.confidence != "heuristic" or (each.path, each.line, each.code) not in computed
    ]
    ordered = dict.fromkeys(sorted(kept, key=lambda each: (each.path, each.line, each.column, each.code)))
    failed = Counter(each.subject for each in ordered if each.code == BrokenRule.code and each.subject)
    final = []
    for finding in ordered:
        times = failed.pop(finding.subject, 0) if finding.code == BrokenRule.code and finding.subject else 1
        if times > 1:
            text = f"{finding.message} It failed {times} times in all; this is the first."
            final.append(finding.model_copy(update={"message": text}))
        elif times:
            final.append(finding)
    return final


def _without_known(
    findings: list[Finding], baseline: Baseline, chosen: Iterable[ChosenRules], answers: Answers, *, is_complete: bool
) -> tuple[list[Finding], report.Baseline]:
    """The findings that are new, and which entries of the baseline are stale."""
    new, missing = baseline.split(findings)
    read = {os.path.realpath(file): rules for rules in chosen for file in rules.target.files}
    traced = {os.path.realpath(path) for path in answers.traced_lines} if is_complete else set()

    def is_judged(file: str, code: str) -> bool:
        rules = read.get(os.path.realpath(file))
        if rules is None:
            return False
        if code in codes_of(rules.rules, TraceRule) | {UnusedSuppression.code}:
            return os.path.realpath(file) in traced
        return code in {rule.code for rule in rules.rules} and (is_complete or code not in rules.of_both)

    stale = baseline.stale(missing, is_judged)
    return new, report.Baseline(
        path=str(baseline.file),
        num_findings=len(findings) - len(new),
        stale=[Stale(path=e.path, code=e.code, text=e.text, count=count) for e, count in stale],
    )

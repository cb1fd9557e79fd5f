"""What only the whole run knows: comments nobody needs, findings that are known, rules that failed again and again."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from memlint.lint.diagnostics import BrokenRule, UnusedSuppression
from memlint.lint.rule import TraceRule
from memlint.lint.suppression import codes_of, unused, without_failed
from memlint.report import model as report_model
from memlint.report.from_rules import finding_of
from memlint.report.model import CodeCount, RunFinding, Stale
from memlint.source.files import Unreadable
from memlint.source.text import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memlint.commands.check.command import Run
    from memlint.commands.check.rules import Choice
    from memlint.commands.targets import Targets
    from memlint.lint.baseline import Baseline


def unused_in_traces(target: Targets, choice: Choice, run: Run) -> list[RunFinding]:
    """Comments in the files of `target` for rules of traced steps that found nothing there, if all Workloads ran."""
    only_one = any(request.path and request.qualname for request in target.requests)
    if only_one or any(workload.error for workload in run.workloads):
        return []
    if UnusedSuppression.code not in {rule.code for rule in choice.rules}:
        return []
    codes = without_failed(codes_of(choice.rules, TraceRule), run.traced)
    files = {os.path.realpath(file) for file in target.files}
    comments: list[RunFinding] = []
    for path, lines in run.traced_lines.items():
        source = _read(path) if os.path.realpath(path) in files else None
        if source is not None:
            comments += [finding_of(found) for found in unused(source, run.traced, codes, lines)]
    return choice.wanted(comments)


def keep_needed_comments(chosen: Sequence[Choice], run: Run) -> None:
    """Drop what was said of comments that the text does not need, but traced steps do, or could."""
    codes = {code for choice in chosen for code in choice.of_both}
    needed: set[tuple[str, int, int, str]] = set()
    for path in {found.path for found in run.traced if found.code in codes}:
        source = _read(path)
        for comment in source.suppressions if source is not None else ():
            needed |= {
                (os.path.realpath(path), comment.line, comment.column, found.code)
                for found in run.traced
                if found.path == path and found.code in comment.codes and comment.first <= found.line <= comment.last
            }

    def is_wrong(found: RunFinding) -> bool:
        code = found.subject
        if found.code != UnusedSuppression.code or code not in codes:
            return False
        return not run.complete or (os.path.realpath(found.path), found.line, found.column, code) in needed

    run.findings = [found for found in run.findings if not is_wrong(found)]


def _read(path: str) -> Source | None:
    try:
        return Source.read(path)
    except Unreadable:
        return None


def leave_out(known: Baseline, targets: Sequence[Targets], chosen: Sequence[Choice], run: Run) -> None:
    """Take the findings away that are known, and say which entries of the baseline are stale."""
    found = run.report().findings
    new, missing = known.split(found)
    run.findings = [RunFinding(**each.model_dump()) for each in new]
    read = {
        os.path.realpath(file): choice for target, choice in zip(targets, chosen, strict=True) for file in target.files
    }
    traced = {os.path.realpath(path) for path in run.traced_lines} if run.complete else set()

    def judged(file: str, code: str) -> bool:
        choice = read.get(os.path.realpath(file))
        if choice is None:
            return False
        if code in codes_of(choice.rules, TraceRule) | {UnusedSuppression.code}:
            return os.path.realpath(file) in traced
        return code in {rule.code for rule in choice.rules} and (run.complete or code not in choice.of_both)

    stale = known.stale(missing, judged)
    run.baseline = report_model.Baseline(
        path=str(known.file),
        num_findings=len(found) - len(run.findings),
        stale=[Stale(path=e.path, code=e.code, text=e.text, count=count) for e, count in stale],
    )


def computed_first(findings: Iterable[RunFinding]) -> list[RunFinding]:
    """The findings without what a rule said of the text of a line where it has computed bytes of a traced step."""
    found = list(findings)
    computed = {(each.path, each.line, each.code) for each in found if each.confidence != "heuristic"}
    return [
        each for each in found if each.confidence != "heuristic" or (each.path, each.line, each.code) not in computed
    ]


def once_per_rule(findings: Iterable[RunFinding]) -> list[RunFinding]:
    """One finding for each rule that failed, however often it did."""
    first: dict[str, int] = {}
    times: Counter[str] = Counter()
    kept: list[RunFinding] = []
    for finding in findings:
        code = finding.subject if finding.code == BrokenRule.code else ""
        if code not in first:
            kept.append(finding)
        if code:
            first.setdefault(code, len(kept) - 1)
            times[code] += 1
    for code, position in first.items():
        if times[code] > 1:
            message = f"{kept[position].message} It failed {times[code]} times in all; this is the first."
            kept[position] = kept[position].model_copy(update={"message": message})
    return kept


def statistics(findings: Iterable[RunFinding], names: Mapping[str, str]) -> list[CodeCount]:
    """Count the findings of each rule, most first; `names` are those of the rules by code."""
    counts = Counter(finding.code for finding in once_per_rule(dict.fromkeys(findings)))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [CodeCount(code=code, name=names.get(code, ""), count=count) for code, count in ordered]

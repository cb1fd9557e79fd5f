"""Running rules: those of a Source over files, the others over one traced Workload.

A rule that raises becomes one finding that names it and the error; the findings it gave before that stay, and the
other rules run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from memlint.base.garbage import uncollected
from memlint.lint.cache import Cache, fingerprint_of
from memlint.lint.diagnostics import BrokenRule, Diagnostic, UnreadableFile
from memlint.lint.processes import Orders, check_with_helpers, num_helpers
from memlint.lint.rule import Finding, Rule, SourceRule, TraceRule
from memlint.lint.suppression import settled, unsuppressed
from memlint.source.files import Unreadable, python_files, read_bytes
from memlint.source.text import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from memlint.lint.rule import Context

_Subject = TypeVar("_Subject")


@dataclass(frozen=True, slots=True)
class Checker:
    """Runs the Source rules among `rules` over one file after the other."""

    rules: tuple[Rule, ...]
    codes: Collection[str] | None = None
    """That suppression comments may name, by default those of all installed rules."""
    cache: Cache | None = None

    def __call__(self, path: str) -> list[Finding]:
        """Give the findings in the file at `path`, of which there are none if it does not concern any rule."""
        try:
            content = read_bytes(path)
            if not concerns(content, self.rules):
                return []
            found = self.cache.read(path, content) if self.cache else None
            return self._check(path, content) if found is None else found
        except Unreadable as error:
            return self._unreadable(error)

    def known(self, path: str) -> list[Finding] | None:
        """Give the findings in the file if that takes no reading of its syntax, else None."""
        try:
            content = read_bytes(path)
        except Unreadable as error:
            return self._unreadable(error)
        if not concerns(content, self.rules):
            return []
        return self.cache.read(path, content) if self.cache else None

    def _check(self, path: str, content: bytes) -> list[Finding]:
        try:
            found = check_source(Source.from_bytes(content, path), self.rules, self.codes)
        except Unreadable as error:
            found = self._unreadable(error)
        if self.cache and not any(finding.code == BrokenRule.code for finding in found):
            self.cache.write(path, content, found)
        return found

    def _unreadable(self, error: Unreadable) -> list[Finding]:
        return [UnreadableFile.of(error)] if _wanted(UnreadableFile, self.rules) else []


def check_paths(
    paths: Iterable[str | Path],
    rules: Iterable[Rule],
    codes: Collection[str] | None = None,
    *,
    cache_root: Path | None = None,
    jobs: int = 1,
    rule_paths: Sequence[Path] = (),
) -> list[Finding]:
    """Run the Source rules among `rules` over the files and directories `paths`.

    `codes` are those that suppression comments may name, by default those of all installed rules. Results are kept in a
    cache below `cache_root`, if that is given. Up to `jobs` processes run at a time, if there is work for them; more
    than one only where `rules` are those that `load_rules` gives, with the project's own in `rule_paths`.
    """
    rules = tuple(rules)
    cache = Cache(cache_root, fingerprint_of(rules, codes)) if cache_root else None
    check = Checker(rules, codes, cache)
    files = [str(path) for path in python_files(paths)]
    known = [check.known(path) for path in files]
    left = [(path, Path(path).stat().st_size) for path, found in zip(files, known, strict=True) if found is None]
    num = num_helpers([nbytes for _path, nbytes in left], jobs)
    orders = Orders(
        rules=tuple(rule.code for rule in rules),
        rule_paths=tuple(map(str, rule_paths)),
        codes=None if codes is None else tuple(codes),
        cache=(str(cache.root), cache.fingerprint) if cache else None,
    )
    with uncollected():
        checked = iter(check_with_helpers(left, check, orders, num))
    return [finding for found in known for finding in (next(checked) if found is None else found)]


def num_cpus() -> int:
    """How many processes can run at a time here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def concerns(content: bytes, rules: Iterable[Rule]) -> bool:
    """Whether one of the words that some rule looks for stands in a file, so that it is worth reading its syntax."""
    content = content.lower()
    return any(not words or any(word.encode() in content for word in words) for words in {r.words for r in rules})


def check_source(source: Source, rules: Iterable[Rule], codes: Collection[str] | None = None) -> list[Finding]:
    """Run the Source rules among `rules` over one Source; findings by line. Raises Unreadable."""
    rules = tuple(rules)
    findings: list[Finding] = []
    for rule in rules:
        if isinstance(rule, SourceRule):
            findings += _run(rule, rule.check, source, source.path)
    findings = settled(source, findings, rules, codes)
    return sorted(findings, key=lambda finding: (finding.line, finding.column, finding.code))


def run_trace_rules(context: Context, rules: Iterable[Rule]) -> list[Finding]:
    """Run the TraceRules among `rules` over one traced Workload; findings by code.

    What comments suppress is left out.
    """
    return unsuppressed(trace_findings(context, rules))


def trace_findings(context: Context, rules: Iterable[Rule]) -> list[Finding]:
    """What `run_trace_rules` gives and what comments suppress, which whoever sees all Workloads of a file decides."""
    findings: list[Finding] = []
    for rule in sorted(rules, key=lambda rule: rule.code):
        if isinstance(rule, TraceRule):
            findings += _run(rule, rule.check, context, context.workload.path)
    return findings


def step_findings(context: Context, rules: Iterable[Rule]) -> list[Finding]:
    """Run `check_steps` of the SourceRules that have one; findings by code, suppressed or not."""
    findings: list[Finding] = []
    for rule in sorted(rules, key=lambda rule: rule.code):
        if isinstance(rule, SourceRule):
            findings += _run(rule, rule.check_steps, context, context.workload.path)
    return findings


def looks_at_steps(rule: Rule) -> bool:
    """Whether a SourceRule also looks at traced steps."""
    return isinstance(rule, SourceRule) and type(rule).check_steps is not SourceRule.check_steps


def _run(rule: Rule, check: Callable[[_Subject], Iterable[Finding]], subject: _Subject, path: str) -> list[Finding]:
    findings: list[Finding] = []
    try:
        for finding in check(subject):
            findings.append(finding)  # noqa: PERF402 -- what came before an error is kept
    except (Exception, RecursionError) as error:
        findings.append(BrokenRule.of_rule(rule, error, path))
    return findings


def _wanted(diagnostic: type[Diagnostic], rules: Iterable[Rule]) -> bool:
    return any(isinstance(rule, diagnostic) for rule in rules)

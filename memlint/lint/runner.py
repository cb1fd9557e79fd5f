"""Running rules: those of a Source over files, the others over one traced Workload.

A rule that raises becomes one finding that names it and the error; the findings it gave before that stay, and the
other rules run.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard, TypeVar

from memlint.lint.cache import Cache
from memlint.lint.diagnostics import BrokenRule, UnreadableFile
from memlint.lint.rule import Context, Finding, Findings, Rule, Severity, SourceRule, TraceRule
from memlint.lint.suppression import settled
from memlint.source.files import Unreadable, read_bytes
from memlint.source.text import Source

_Subject = TypeVar("_Subject")


@dataclass(frozen=True, slots=True)
class Checker:
    """Runs the Source rules among `rules` over one file after the other."""

    rules: tuple[Rule, ...]
    codes: Collection[str] | None = None
    """The codes that suppression comments may name, by default those of all installed rules."""
    cache: Cache | None = None

    def known(self, path: str) -> list[Finding] | None:
        """Give the findings in the file if that takes no reading of its syntax, else None."""
        try:
            content = read_bytes(path)
        except Unreadable as error:
            return self._unreadable(error)
        if not concerns(content, self.rules):
            return []
        return self.cache.read(path, content) if self.cache else None

    def read(self, path: str) -> list[Finding]:
        """Give the findings in the file, which are not known."""
        try:
            content = read_bytes(path)
        except Unreadable as error:
            return self._unreadable(error)
        try:
            findings = check_source(Source.from_bytes(content, path), self.rules, self.codes)
        except Unreadable as error:
            findings = self._unreadable(error)
        if self.cache and not any(finding.code == BrokenRule.code for finding in findings):
            self.cache.write(path, content, findings)
        return findings

    def _unreadable(self, error: Unreadable) -> list[Finding]:
        return [UnreadableFile.of(error)] if any(isinstance(rule, UnreadableFile) for rule in self.rules) else []


def concerns(content: bytes, rules: Iterable[Rule]) -> bool:
    """Return True if a file contains one of the words that some rule looks for, so that its syntax is worth reading."""
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


def trace_findings(
    context: Context,
    rules: Iterable[Rule],
    left: list[str] | None = None,
    begins: Callable[[str], None] = lambda _code: None,
) -> Iterator[Finding]:
    """Run `check` of TraceRules, then `check_steps` of SourceRules, over one traced Workload; findings by code each.

    What comments suppress, whoever sees all Workloads of a file decides. `left` is given the codes of the rules that
    are not through yet, and `begins` is called with the code of each before it runs. Where a rule is stopped, all
    findings of those before it are yielded before it says so.
    """
    ordered = sorted(rules, key=lambda rule: rule.code)
    checks: list[tuple[Rule, Callable[[Context], Findings]]]
    checks = [(rule, rule.check) for rule in ordered if isinstance(rule, TraceRule)]
    checks += [(rule, rule.check_steps) for rule in ordered if isinstance(rule, SourceRule)]
    guesses: dict[str, list[Finding]] = {}
    stopped: BaseException | None = None
    for number, (rule, check) in enumerate(checks):
        if left is not None:
            left[:] = [each.code for each, _ in checks[number:]]
        begins(rule.code)
        try:
            findings = _run(rule, check, context, context.workload.path)
        except BaseException as error:
            stopped = error
            break
        for finding in findings:
            setting = getattr(rule, "rests_on", "")
            if setting and setting in context.assumed and finding.code == rule.code and finding.peak_change is not None:
                guesses.setdefault(setting, []).append(finding)
            else:
                yield finding
    for alternatives in guesses.values():
        yield replace(min(alternatives, key=lambda finding: finding.peak_change or 0), severity=Severity.NOTE)
    if stopped is not None:
        raise stopped
    if left is not None:
        left.clear()


def looks_at_steps(rule: Rule) -> TypeGuard[SourceRule]:
    """Return True if a SourceRule also looks at traced steps."""
    return isinstance(rule, SourceRule) and type(rule).check_steps is not SourceRule.check_steps


def _run(rule: Rule, check: Callable[[_Subject], Iterable[Finding]], subject: _Subject, path: str) -> list[Finding]:
    findings: list[Finding] = []
    try:
        for finding in check(subject):
            findings.append(finding)  # noqa: PERF402 -- what came before an error is kept
    except (Exception, SystemExit) as error:
        findings.append(BrokenRule.of_rule(rule, error, path))
    return findings

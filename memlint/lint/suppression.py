"""Taking away the findings that comments suppress, and reporting comments that suppress nothing."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from memlint.base.grouping import grouped
from memlint.lint.diagnostics import BrokenRule, Diagnostic, MalformedSuppression, UnusedSuppression
from memlint.lint.registry import load_rules
from memlint.lint.rule import Finding, Rule, SourceRule
from memlint.lint.selection import closest_code
from memlint.source.comments import Suppression
from memlint.source.text import Source, source_at


class Located(Protocol):
    """A finding, of a rule or of the Report."""

    @property
    def code(self) -> str:
        """The code of the rule."""

    @property
    def path(self) -> str:
        """The path of the file."""

    @property
    def line(self) -> int:
        """From 1."""


class AboutRule(Located, Protocol):
    """A finding that may be one of memlint's own about a rule."""

    @property
    def subject(self) -> str:
        """Code of that rule."""


F = TypeVar("F", bound=Located)


def settled(
    source: Source, findings: Iterable[Finding], rules: Collection[Rule], codes: Collection[str] | None = None
) -> list[Finding]:
    """Return the `findings` of the Source rules among `rules` that comments of `source` do not suppress.

    Malformed and unused comments are reported, if `rules` hold those diagnostics. `codes` are those that comments may
    name, by default those of all installed rules; empty if they are not all known.
    """
    findings = list(findings)
    diagnostics = {rule.code for rule in rules if isinstance(rule, Diagnostic)}
    if MalformedSuppression.code in diagnostics:
        findings += diagnose(source, codes)
    if UnusedSuppression.code in diagnostics:
        findings += unused(source, findings, without_failed(codes_of(rules, SourceRule), findings))
    return unsuppressed(findings, {source.path: source})


def unsuppressed(findings: Iterable[F], sources: Mapping[str, Source] | None = None) -> list[F]:
    """Leave out the findings that comments take away.

    Files are looked up in `sources` and read if they are not there; a finding in a file that cannot be read stays.
    """
    known: dict[str, Source | None] = dict(sources or {})
    kept = []
    for finding in findings:
        if finding.path not in known:
            known[finding.path] = source_at(finding.path)
        source = known[finding.path]
        if source is None or not source.suppressed(finding.code, finding.line):
            kept.append(finding)
    return kept


def diagnose(source: Source, codes: Collection[str] | None = None) -> Iterator[Finding]:
    """Report every comment of `source` that is no suppression or names a code not in `codes`.

    By default those are the codes of all installed rules; if empty, no code is held for unknown.
    """
    for malformed in source.malformed:
        yield MalformedSuppression.of(source.path, malformed)
    own = [suppression for suppression in source.suppressions if suppression.origin == "memlint"]
    if own and codes is None:
        codes = [rule.code for rule in load_rules().rules]
    for suppression in own:
        for code in suppression.codes:
            if codes and code not in codes:
                close = closest_code(code, codes)
                yield MalformedSuppression.at(
                    source.path,
                    suppression.line,
                    f"No installed rule has the code {code}, so the comment suppresses nothing.",
                    f"Did you mean {close}?" if close else "`memlint rule --all` lists the codes.",
                    suppression.column,
                )


def unused(
    source: Source, findings: Iterable[Located], codes: Collection[str], traced_lines: Collection[int] | None = None
) -> Iterator[Finding]:
    """Report every one of `codes`, whose rules ran, that a comment names and none of `findings` has where it counts.

    With `traced_lines`, for rules of traced steps, only comments that cover one of these lines are judged.
    """
    ordered = sorted(findings, key=lambda finding: finding.line)
    lines = grouped((finding.code, finding.line) for finding in ordered if finding.path == source.path)
    traced = None if traced_lines is None else sorted(traced_lines)
    for suppression in source.suppressions:
        if traced is not None and not _any_within(traced, suppression):
            continue
        for code in dict.fromkeys(suppression.codes):
            if code in codes and not _any_within(lines[code], suppression):
                yield UnusedSuppression.of(source.path, suppression, code, traced=traced_lines is not None)


def _any_within(lines: Sequence[int], suppression: Suppression) -> bool:
    """Return True if one of `lines`, which ascend, is covered."""
    position = bisect_left(lines, suppression.first)
    return position < len(lines) and lines[position] <= suppression.last


def codes_of(rules: Iterable[Rule], base: type[Rule]) -> frozenset[str]:
    """Codes of those of `rules` that derive from `base`."""
    return frozenset(rule.code for rule in rules if isinstance(rule, base))


def without_failed(codes: frozenset[str], findings: Iterable[AboutRule]) -> frozenset[str]:
    """Leave out the codes of rules that `findings` say failed: what they would have found is not known."""
    return codes - {finding.subject for finding in findings if finding.code == BrokenRule.code}

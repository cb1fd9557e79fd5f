"""Second stage of `memlint check`: the rules chosen for each target, and what those that read source find."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from memlint.base.errors import TargetError
from memlint.commands.check.targets import failure
from memlint.commands.targets import Targets
from memlint.lint.own_rules import kept_in_bounds
from memlint.lint.processes import check_paths, num_cpus
from memlint.lint.registry import Registry, project_rules
from memlint.lint.rule import Applicability, Finding, Rule
from memlint.lint.runner import check_source, looks_at_steps
from memlint.lint.selection import FileIgnores
from memlint.lint.suppression import F
from memlint.report import model as report
from memlint.report.from_rules import finding_of
from memlint.report.model import Workload
from memlint.source.files import Unreadable
from memlint.source.text import Source


@dataclass(frozen=True, slots=True)
class ChosenRules:
    """The rules that one target is checked with."""

    target: Targets
    registry: Registry
    rules: tuple[Rule, ...]
    ignores: FileIgnores
    rule_paths: tuple[Path, ...]
    """The files from which the project's own rules were loaded."""

    @property
    def of_both(self) -> frozenset[str]:
        """Codes of the rules that look at the text and at traced steps."""
        return frozenset(rule.code for rule in self.rules if looks_at_steps(rule) and not rule.text_decides)

    def unignored(self, findings: Iterable[F]) -> list[F]:
        """The findings that `per-file-ignores` lets through."""
        return [finding for finding in findings if not self.ignores.ignores(finding.code, finding.path)]

    def findings(self, files: Sequence[Path], *, cache: bool) -> list[Finding]:
        """Findings of source rules in files of the target. A single one is not worth a cache. Raises WorkerError."""
        root = self.target.root if cache and len(files) > 1 else None
        bounds = kept_in_bounds(self.target.settings.timeout) if self.rule_paths else nullcontext()
        with redirect_stdout(sys.stderr), bounds:  # where no report is spoilt by what a rule prints
            findings = check_paths(
                files, self.rules, self._codes(), cache_root=root, jobs=num_cpus(), rule_paths=self.rule_paths
            )
        return self.unignored(findings)

    def findings_in(self, source: Source) -> list[Finding]:
        """Findings of source rules in one Source."""
        return self.unignored(check_source(source, self.rules, self._codes()))

    def _codes(self) -> tuple[str, ...]:
        """Codes that comments may name; none if they are not all known."""
        return tuple(rule.code for rule in self.registry.rules) if self.registry.complete else ()


@dataclass(frozen=True, slots=True)
class SourceFindings:
    """The findings and records that exist before any code runs."""

    findings: tuple[report.Finding, ...]
    failures: tuple[Workload, ...]
    """Files that were named and cannot be read."""
    correctable: Counter[Applicability]
    """How many of the findings have a Correction."""


def choose_rules(targets: Iterable[Targets], *, execute: bool, none: bool = False) -> tuple[ChosenRules, ...]:
    """The rules for each target, or `none`; a project's own are loaded once.

    Raises UsageError for codes that no rule has.
    """
    registries: dict[tuple[Path, tuple[str, ...]], Registry] = {}
    chosen = []
    for target in targets:
        settings, root = target.settings, target.root
        if (root, settings.rule_paths) not in registries:
            known = Registry((), (), complete=False) if none else project_rules(settings, root, execute=execute)
            registries[root, settings.rule_paths] = known
        registry = registries[root, settings.rule_paths]
        ignores = FileIgnores.of(settings.per_file_ignores, root, registry.rules, complete=registry.complete)
        paths = tuple(root / path for path in settings.rule_paths) if execute else ()
        rules = () if none else registry.chosen(settings)
        chosen.append(ChosenRules(target, registry, rules, ignores, paths))
    return tuple(chosen)


def source_findings(chosen: Iterable[ChosenRules], *, cache: bool) -> SourceFindings:
    """Run the source rules over the files of all targets. A file that was named and cannot be read is a failure."""
    findings: list[report.Finding] = []
    failures: list[Workload] = []
    correctable: Counter[Applicability] = Counter()
    for rules in chosen:
        unreadable = dict(_unreadable(rules.target))
        failures += unreadable.values()
        files = [file for file in rules.target.files if not unreadable or str(file.resolve()) not in unreadable]
        here = rules.findings(files, cache=cache)
        findings += map(finding_of, (*rules.unignored(rules.registry.problems), *here))
        correctable.update(finding.correction.applicability for finding in here if finding.correction)
    return SourceFindings(tuple(findings), tuple(failures), correctable)


def _unreadable(target: Targets) -> Iterator[tuple[str, Workload]]:
    """The files of Requests that were named and cannot be read, by absolute path."""
    for request in target.requests:
        if request.named and request.path and request.path.endswith(".py"):
            try:
                Source.read(request.path)
            except Unreadable as error:
                reason = TargetError(f"{error.reason} (line {error.line})", "Correct the file.")
                yield request.path, failure(request.target, reason)

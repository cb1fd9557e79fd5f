"""Which rules each target is checked with, and running those of them that read source."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlint.lint.processes import check_paths, num_cpus
from memlint.lint.registry import Registry, project_rules
from memlint.lint.runner import check_source, looks_at_steps
from memlint.lint.selection import FileIgnores

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from memlint.commands.targets import Targets
    from memlint.lint import rule
    from memlint.lint.suppression import F
    from memlint.source.text import Source


@dataclass(frozen=True, slots=True)
class Choice:
    """The rules that one target is checked with."""

    registry: Registry
    rules: tuple[rule.Rule, ...]
    ignores: FileIgnores
    rule_paths: tuple[Path, ...]
    """Where the project's own rules were loaded from."""

    @property
    def of_both(self) -> frozenset[str]:
        """Codes of the rules that look at the text and at traced steps."""
        return frozenset(rule.code for rule in self.rules if looks_at_steps(rule))

    def wanted(self, findings: Iterable[F]) -> list[F]:
        """Those that `per-file-ignores` lets through."""
        return [finding for finding in findings if not self.ignores.ignores(finding.code, finding.path)]

    def findings(self, target: Targets, files: Sequence[Path], *, cache: bool) -> list[rule.Finding]:
        """What Source rules find in files of the target. A single one is not worth a cache."""
        root = target.root if cache and len(files) > 1 else None
        codes = self._codes()
        with redirect_stdout(sys.stderr):  # where no report is spoilt by what a rule prints
            found = check_paths(files, self.rules, codes, cache_root=root, jobs=num_cpus(), rule_paths=self.rule_paths)
        return self.wanted(found)

    def findings_in(self, source: Source) -> list[rule.Finding]:
        """What Source rules find in one Source."""
        return self.wanted(check_source(source, self.rules, self._codes()))

    def _codes(self) -> tuple[str, ...]:
        """Codes that comments may name; none if they are not all known."""
        return tuple(rule.code for rule in self.registry.rules) if self.registry.complete else ()


def choose(targets: Sequence[Targets], *, execute: bool) -> list[Choice]:
    """The rules for each target; a project's own are loaded once. Raises UsageError for codes no rule has."""
    registries: dict[tuple[Path, tuple[str, ...]], Registry] = {}
    choices = []
    for target in targets:
        settings, root = target.settings, target.root
        if (root, settings.rule_paths) not in registries:
            registries[root, settings.rule_paths] = project_rules(settings, root, execute=execute)
        registry = registries[root, settings.rule_paths]
        ignores = FileIgnores.of(settings.per_file_ignores, root, registry.rules, complete=registry.complete)
        paths = tuple(root / path for path in settings.rule_paths) if execute else ()
        choices.append(Choice(registry, registry.chosen(settings), ignores, paths))
    return choices

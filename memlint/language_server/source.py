"""Findings of source rules in a text that is edited, with the rules of the project that its file belongs to."""

from dataclasses import dataclass, field
from pathlib import Path

from memlint.base.garbage import long_lived
from memlint.commands.check.source_findings import ChosenRules, choose_rules
from memlint.commands.targets import Targets, is_excluded
from memlint.config import find_settings
from memlint.lint.diagnostics import UnreadableFile
from memlint.lint.rule import Finding
from memlint.lint.runner import concerns
from memlint.source.files import Unreadable
from memlint.source.text import Source


@dataclass(frozen=True, slots=True)
class Checked:
    """A text and its findings."""

    text: str
    source: Source | None
    """None where the text is not Python as it stands."""
    findings: tuple[Finding, ...]


@dataclass
class Linter:
    """Chooses the rules of each folder once, until it is told that configurations may have changed."""

    _chosen: dict[Path, ChosenRules] = field(default_factory=dict)

    def forget(self) -> None:
        """Read the configurations again from now on."""
        self._chosen.clear()

    @long_lived()
    def check(self, path: Path, text: str, before: Checked | None = None) -> Checked:
        """Run the installed source rules over the text of the file at `path`. Raises UsageError for a configuration.

        Statements that are the same as `before`, an edit ago, need not be parsed.

        A project's own rules are code of the project: they run when the file is saved.
        """
        rules = self.rules(path)
        try:
            source = Source.from_text(text, str(path), before.source if before is not None else None)
        except Unreadable as error:
            return Checked(text, None, tuple(rules.unignored([UnreadableFile.of(error)])))
        if is_excluded(path, rules.target.root, rules.target.settings.exclude):
            return Checked(text, source, ())
        is_concerned = concerns(text.encode(errors="replace"), rules.rules)
        return Checked(text, source, tuple(rules.findings_in(source)) if is_concerned else ())

    def rules(self, path: Path) -> ChosenRules:
        """Give the rules for the file at `path`."""
        folder = path.parent
        if folder not in self._chosen:
            settings, root = find_settings(folder)
            (self._chosen[folder],) = choose_rules([Targets(settings, root, (path,), ())], execute=False)
        return self._chosen[folder]

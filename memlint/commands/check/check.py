"""`memlint check`: targets, source findings, answers of workers, settled findings, Report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from memlint import config
from memlint.base.errors import UsageError
from memlint.base.version import __version__
from memlint.capture.capture import Capture
from memlint.commands.check.answers import Output, answers_of_workers
from memlint.commands.check.notebooks import Written, by_cell, is_notebook, notebook_folder
from memlint.commands.check.settled import settle
from memlint.commands.check.source_findings import ChosenRules, choose_rules, source_findings
from memlint.commands.check.targets import CheckOptions, CheckTargets, check_targets
from memlint.commands.early import early_session
from memlint.commands.parts import OnPart, Part, Phase, nobody
from memlint.lint.rule import Applicability
from memlint.memory.devices import device_named
from memlint.report.model import CodeCount, Finding, Report, Settings, Skipped, Workload
from memlint.report.paths import relative
from memlint.source.leading_scripts import training_command

if TYPE_CHECKING:
    from memlint.lint.fixes import Fixed
    from memlint.worker.start import Started


@dataclass(frozen=True, slots=True)
class Checked:
    """The Report, and what the command line prints besides."""

    report: Report
    files: tuple[Path, ...] = ()
    """The Python files that were named, or found in directories that were."""
    correctable: Mapping[Applicability, int] = field(default_factory=Counter)
    """How many of the source rules' findings have a Correction."""
    declarations: tuple[str, ...] = ()
    """With `init`: what to add to the configuration."""
    outputs: tuple[Output, ...] = ()
    """The output of each target's code."""


def check(
    arguments: Sequence[str],
    settings: Mapping[str, object],
    options: CheckOptions,
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
    on_part: OnPart = nobody,
    child: Started | None = None,
) -> Checked:
    """Run the source rules over `arguments`, and the Workloads in them unless the options say no.

    `settings` are those that the command line gave; `on_wait` is called with the target that is analysed and the
    seconds it has taken so far, `on_part` with each part of the Report that is known before the end. `child` was
    started for an only target, which asks it if it can. Raises
    MemlintError for configuration and for an only argument that make no sense; what goes wrong with one target of
    several stands in the Report.
    """
    if options.init and any(map(is_notebook, arguments)):
        raise UsageError(
            "a model in a notebook cannot be declared", "Move it into a Python file, and import it from there."
        )
    with notebook_folder(arguments) as folder:
        resolved = check_targets(arguments, settings, options, folder)
        return check_resolved(resolved, arguments, options, on_wait, on_part, child)


def check_resolved(
    resolved: CheckTargets,
    arguments: Sequence[str],
    options: CheckOptions,
    on_wait: Callable[[str, float], None],
    on_part: OnPart = nobody,
    child: Started | None = None,
) -> Checked:
    """Run `check` on targets that are known already."""
    baseline = None
    if options.baseline is not None:
        from memlint.lint.baseline import Baseline  # noqa: PLC0415

        baseline = Baseline.read(options.baseline)
    on_part(Phase("reading the sources"))
    programs = {written.file for written in resolved.notebooks}
    files = tuple(file for target in resolved.targets for file in target.files if file not in programs)
    requests = [request for target in resolved.targets for request in target.requests if options.execute]
    with early_session(requests, cache=options.cache, child=child) as early:
        chosen = choose_rules(resolved.targets, execute=options.execute, none=options.quick)
        for target in resolved.targets:
            for name in (target.settings.gpu or "cpu", *target.settings.gpu_prices):
                device_named(name)
        source = source_findings(chosen, cache=options.cache)
        failures = (*resolved.failures, *source.failures)
        shown = _final_of(on_part, files, resolved.notebooks, options)
        answers = answers_of_workers(chosen, failures, options, on_wait, shown, early)
    on_part(Phase("putting it together"))
    settled = settle(arguments, chosen, source, answers, baseline, cache=options.cache)
    report = Report(
        tool=f"memlint {__version__}",
        torch=answers.torch,
        settings=_settings(resolved.targets[-1].settings, options) if resolved.targets else Settings(),
        workloads=list(settled.workloads),
        findings=list(settled.findings),
        skipped=[*resolved.skipped, *settled.skipped, *_undeclared(arguments, settled.workloads, options)],
        baseline=settled.baseline,
        statistics=_statistics(settled.findings, chosen) if options.statistics else None,
    )
    return Checked(
        report=Report.model_validate(relative(by_cell(report.model_dump(), resolved.notebooks), Path.cwd(), files)),
        files=files,
        correctable=source.correctable if not programs else Counter(),
        declarations=answers.declarations,
        outputs=answers.outputs,
    )


def _undeclared(arguments: Sequence[str], workloads: Sequence[Workload], options: CheckOptions) -> Iterator[Skipped]:
    """Say what to type where a folder was named in which no Workload is declared."""
    folder = next((path for path in map(Path, arguments) if path.is_dir()), None)
    others = options.affected or options.init or options.statistics or options.baseline is not None
    if folder is None or workloads or others or not options.execute:
        return
    command = training_command(folder.resolve()) or "memlint run with a training script and its arguments"
    hint = f"Type {command}, or memlint check with the file of a model."
    yield Skipped(reason="no model was looked at: in a folder only declared ones are", hint=hint)


def corrections(
    arguments: Sequence[str], settings: Mapping[str, object], options: CheckOptions, *, unsafe: bool = False
) -> list[Fixed]:
    """Return each file in `arguments` as source rules correct it; write none. `unsafe`: also what may change more.

    Raises MemlintError for arguments and configuration that make no sense.
    """
    from memlint.lint.fixes import fix_file  # noqa: PLC0415

    targets = check_targets(arguments, settings, options, strict=True).targets
    fixed = []
    for rules in choose_rules(targets, execute=options.execute):
        findings = rules.findings(rules.target.files, cache=options.cache)
        paths = sorted({finding.path for finding in findings if finding.correction})
        fixed += [fix_file(path, rules.findings_in, unsafe=unsafe) for path in paths]
    return [each for each in fixed if each is not None]


def _statistics(findings: Iterable[Finding], chosen: Iterable[ChosenRules]) -> list[CodeCount]:
    """The number of findings of each rule, most first."""
    names = {rule.code: rule.name for rules in chosen for rule in rules.registry.rules}
    ordered = sorted(Counter(finding.code for finding in findings).items(), key=lambda item: (-item[1], item[0]))
    return [CodeCount(code=code, name=names.get(code, ""), count=count) for code, count in ordered]


def _final_of(on_part: OnPart, files: Sequence[Path], notebooks: Sequence[Written], options: CheckOptions) -> OnPart:
    """Call `on_part` with parts as the Report will have them; findings that it may leave out or count stay away."""
    lists_findings = options.baseline is None and not options.statistics

    def pass_on(part: Part) -> None:
        match part:
            case Phase() | Capture():
                on_part(part)
            case Workload():
                on_part(Workload.model_validate(relative(by_cell(part.model_dump(), notebooks), Path.cwd(), files)))
            case Finding() if lists_findings:
                on_part(Finding.model_validate(relative(by_cell(part.model_dump(), notebooks), Path.cwd(), files)))

    return pass_on


def _settings(settings: config.Settings, options: CheckOptions) -> Settings:
    budget = settings.budget.get("*")
    alike = settings.model_dump(include=set(Settings.model_fields) - {"budget"})
    return Settings(**alike, budget=budget.max if budget else None, no_exec=not options.execute, quick=options.quick)

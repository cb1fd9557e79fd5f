"""Running the examples of rules as their tests: the bad ones must be found, the good ones not."""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from memlint.base.errors import RuleError, UsageError
from memlint.commands.analyse.analyse import analyse
from memlint.commands.analyse.look import Look
from memlint.config import Settings
from memlint.lint import rule as lint
from memlint.lint.diagnostics import BrokenRule, Diagnostic, UnreadableFile
from memlint.lint.own_rules import kept_in_bounds
from memlint.lint.registry import Registry, load_rules, project_rules
from memlint.lint.rule import Case, Rule, TraceRule
from memlint.lint.runner import check_source
from memlint.report.model import Finding
from memlint.source.files import Unreadable
from memlint.source.text import Source
from memlint.worker.protocol import Request, Result
from memlint.worker.supervise import carry_out
from memlint.worker.task import Task


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one case, or one rule without cases, came out."""

    name: str
    """`ACM001 bad 1`, and the title of the case."""
    problem: str
    """Empty if all is well."""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Subjects:
    """The rules to try, and where they were loaded from."""

    rules: tuple[Rule, ...]
    problems: tuple[lint.Finding, ...]
    paths: tuple[Path, ...]
    """Absolute: what a process that runs them has to load."""
    timeout: float
    """Seconds that they may take over one text."""


def find_subjects(arguments: Sequence[str], settings: Settings, root: Path) -> Subjects:
    """The rules in files and folders, and installed ones or those of the project by code or name.

    Raises UsageError for an argument that is neither.
    """
    places = tuple(Path(argument).resolve() for argument in arguments if _is_path(argument))
    for place in places:
        if not place.exists():
            raise UsageError(f"{place} does not exist", "Give a file or folder of rules, or the code of a rule.")
    with kept_in_bounds(settings.timeout):
        written = load_rules((), places)
    rules = [rule for rule in written.rules if not isinstance(rule, Diagnostic)]
    problems = [*written.problems, *_taken(rules, load_rules())]
    named = [argument for argument in arguments if not _is_path(argument)]
    if named:
        project = project_rules(settings, root)
        rules += [project[argument] for argument in named]
        places = (*places, *(root / path for path in settings.rule_paths))
    return Subjects(tuple(dict.fromkeys(rules)), tuple(problems), places, settings.timeout)


def _taken(rules: Iterable[Rule], installed: Registry) -> Iterator[lint.Finding]:
    """A problem for each of `rules` whose code is that of an installed rule, unless it is that rule's own file."""
    others = {rule.code: rule for rule in installed.rules}
    for rule in rules:
        other, file = others.get(rule.code), Path(inspect.getfile(type(rule)))
        if other is not None and not file.samefile(inspect.getfile(type(other))):
            error = RuleError(f"the code {rule.code} is that of {other.name}, which is installed")
            yield BrokenRule.of_file(file, error, type(rule))


def _is_path(argument: str) -> bool:
    return Path(argument).exists() or argument.endswith(".py") or "/" in argument


def run_cases(subjects: Subjects) -> Iterator[Outcome]:
    """Run every case of every rule, and say of broken files and of rules without cases what is wrong."""
    for problem in subjects.problems:
        yield Outcome(f"{problem.path}:{problem.line}", problem.message, "Correct the file.")
    for rule in subjects.rules:
        if isinstance(rule, BrokenRule):
            continue
        for kind, cases in (("bad", rule.bad), ("good", rule.good)):
            if not cases:
                yield Outcome(f"{rule.code} {kind}", f"there is no {kind} case", f"Give the rule a Case in `{kind}`.")
            for number, case in enumerate(cases, 1):
                title = f" ({case.title})" if case.title else ""
                yield Outcome(f"{rule.code} {kind} {number}{title}", _problem(rule, case, kind, subjects))


def _problem(rule: Rule, case: Case, kind: str, subjects: Subjects) -> str:
    findings: Sequence[lint.Finding] | Sequence[Finding]
    try:
        if isinstance(rule, TraceRule):
            findings = findings_in_trace(rule, case, subjects.paths)
        else:
            with kept_in_bounds(subjects.timeout):
                findings = findings_in_text(rule, case)
    except _NotRunError as error:
        return str(error)
    return verdict(rule, case, kind, findings)


def verdict(rule: Rule, case: Case, kind: str, findings: Sequence[lint.Finding] | Sequence[Finding]) -> str:
    """Say what is wrong with the findings of a case that is `bad` or `good`; empty if nothing is."""
    failed = [finding.message for finding in findings if finding.code == BrokenRule.code]
    if failed:
        return failed[0]
    own = [finding for finding in findings if finding.code == rule.code]
    if kind == "good":
        return f"line {own[0].line} is reported: {own[0].message}" if own else ""
    if not own:
        return "nothing is reported"
    lines = [finding.line for finding in own]
    if case.line is not None and lines != [case.line]:
        return f"line {', '.join(map(str, lines))} is reported instead of line {case.line}"
    return ""


def findings_in_text(rule: Rule, case: Case) -> list[lint.Finding]:
    """Return the findings of the rule in the text of a case; for a diagnostic, all installed rules run."""
    rules, codes = (load_rules().rules, None) if isinstance(rule, Diagnostic) else ((rule,), ())
    try:
        return check_source(Source.from_text(case.source, "case.py"), rules, codes)
    except Unreadable as error:
        if isinstance(rule, UnreadableFile):
            return [UnreadableFile.of(error)]
        raise _NotRunError(f"the case {error.reason} (line {error.line})") from error


def request_of(rule: Rule, case: Case, folder: Path, paths: Sequence[Path] = ()) -> Request:
    """Write the case into `folder`, and say what a worker with the rules of `paths` has to do with it."""
    file = folder.resolve() / "case.py"
    file.write_text(case.source, encoding="utf-8")
    settings = Settings.model_validate(
        {
            "dtype": case.dtype,
            "select": [rule.code],
            "rule-paths": [str(path) for path in paths],
            "budget": {"*": {"max": case.budget}} if case.budget is not None else {},
        }
    )
    return Request(target="case.py", path=str(file), root=str(file.parent), settings=settings)


def findings_in_trace(rule: Rule, case: Case, paths: Sequence[Path]) -> list[Finding]:
    """Return the findings of the rule in the Workload that a case declares, traced in a process of its own."""
    with TemporaryDirectory(prefix="memlint-case-") as folder:
        request = request_of(rule, case, Path(folder), paths)
        answer = carry_out(Task(request, request.limits(), partial(analyse, look=Look(thorough=case.detailed))))
    if not isinstance(answer.result, Result):
        raise _NotRunError(f"the case cannot be run: {answer.error}")
    for workload in answer.result.workloads:
        if workload.error is not None:
            raise _NotRunError(f"the case cannot be run: {workload.error.message}")
    if not answer.result.workloads:
        raise _NotRunError("the case declares no workload, as with `def memlint_workload():`")
    return answer.result.findings


class _NotRunError(Exception):
    """Why a case could not be run."""

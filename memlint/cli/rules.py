"""`memlint rule`, `rules`, `new-rule` and `test`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlint.base.errors import UsageError
from memlint.base.units import format_count
from memlint.cli import completion
from memlint.cli.options import FOLDER, NO_LOCAL_RULES, format_option
from memlint.cli.printing import print_error

if TYPE_CHECKING:
    from memlint.lint.registry import Registry


def _registry(no_exec: bool) -> Registry:
    from memlint.lint.registry import registry_here  # noqa: PLC0415 -- help does without

    return registry_here(no_exec)


@click.command()
@click.argument("code", required=False, shell_complete=completion.rules)
@click.option("--all", "every", is_flag=True, help="List all rules.")
@NO_LOCAL_RULES
def rule(code: str | None, every: bool, no_exec: bool) -> None:
    """Explain a rule, named by its code or name."""
    from memlint.lint.pages import page  # noqa: PLC0415

    if every:
        click.get_current_context().invoke(rules, output_format="text", no_exec=no_exec)
    elif code is None:
        raise UsageError("which rule?", "Give its code, such as MEM107, or --all.")
    else:
        click.echo(page(_registry(no_exec)[code]), nl=False)


@click.command()
@format_option("text", "json")
@NO_LOCAL_RULES
def rules(output_format: str, no_exec: bool) -> None:
    """List the installed rules, and those of the project."""
    import json  # noqa: PLC0415

    from memlint.report.text_style import table  # noqa: PLC0415

    registry = _registry(no_exec)
    if output_format == "json":
        entries = [
            {
                "code": rule.code,
                "name": rule.name,
                "severity": rule.severity.value,
                "summary": rule.summary,
                "looks_at": rule.looks_at,
                "module": type(rule).__module__,
            }
            for rule in registry.rules
        ]
        click.echo(json.dumps(entries, indent=2))
    else:
        rows = [(rule.code, rule.name, rule.severity.value, rule.summary) for rule in registry.rules]
        click.echo("\n".join(table(rows, ("left",) * 4)))
    for problem in registry.problems:
        print_error(problem.message, problem.fix)


@click.command()
@click.argument("code")
@click.argument("name")
@click.option("--path", type=FOLDER, help="Folder for it: by default the first of rule-paths, or lint_rules.")
@NO_LOCAL_RULES
def new_rule(code: str, name: str, path: Path | None, no_exec: bool) -> None:
    """Write a rule that works, with cases that pass, to start from.

    CODE is what it is called in comments, such as ACM001; NAME says what it finds, such as prints-in-forward.
    """
    from memlint.config import find_settings  # noqa: PLC0415
    from memlint.lint.scaffold import write_rule  # noqa: PLC0415

    settings, root = find_settings(Path())
    configured = [root / folder for folder in settings.rule_paths if not folder.endswith(".py")]
    folder = path or Path(os.path.relpath(configured[0] if configured else root / "lint_rules"))
    file = write_rule(code, name, folder, _registry(no_exec))
    click.echo(f"Wrote {file}. Try it with: memlint test {file}")
    if folder.resolve() not in {place.resolve() for place in configured}:
        inside = Path(os.path.relpath(folder, root)).as_posix()
        click.echo(f'memlint check runs it with this in [tool.memlint]: rule-paths = ["{inside}"]')


@click.command()
@click.argument("subjects", nargs=-1, required=True, metavar="PATH|CODE...")
@click.option("-q", "--quiet", is_flag=True, help="Failures only.")
def test(subjects: tuple[str, ...], quiet: bool) -> None:
    """Run the cases of rules: the bad ones must be found, the good ones not.

    PATH is a file or folder of rules, CODE the code or name of an installed rule or of one of the project.

    Exit status: 0 all cases passed, 1 a case or a rule failed.
    """
    from memlint.commands.rule_cases import find_subjects, run_cases  # noqa: PLC0415
    from memlint.config import find_settings  # noqa: PLC0415

    settings, root = find_settings(Path())
    count = failed = 0
    for outcome in run_cases(find_subjects(subjects, settings, root)):
        count += 1
        failed += bool(outcome.problem)
        if outcome.problem:
            click.echo(f"{click.style('FAILED', fg='red', bold=True)}  {outcome.name}: {outcome.problem}")
        elif not quiet:
            click.echo(f"{click.style('passed', fg='green')}  {outcome.name}")
    if not count:
        raise UsageError("there are no rules", "Give a file with a subclass of memlint.lint.rule.Rule, or a code.")
    click.echo(
        f"{failed} of {format_count(count, 'case')} failed." if failed else f"{format_count(count, 'case')} passed."
    )
    click.get_current_context().exit(int(failed > 0))

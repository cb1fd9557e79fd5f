"""`memlint check`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlint.base.errors import UsageError
from memlint.base.garbage import long_lived
from memlint.base.quick_dataclasses import quick_dataclasses
from memlint.base.units import format_count
from memlint.cli import completion
from memlint.cli.options import CHECK_OPTIONS, COLOR, CONFIG_OF, PACKAGES, SECONDS, workload_options
from memlint.cli.printing import (
    ReportOutput,
    print_errors,
    print_outputs,
    progress,
    show_progress,
    text_style_of,
    write,
    write_report,
)
from memlint.report.formats import WITH_ERRORS, WITH_STATISTICS

if TYPE_CHECKING:
    from memlint.commands.check.check import Checked
    from memlint.commands.check.targets import CheckOptions
    from memlint.lint.fixes import Fixed
    from memlint.report.model import Report


_FLAGS = (
    "alloc_conf",
    "cache",
    "execute",
    "affected",
    "force_exclude",
    "init",
    "plan",
    "allow_dynamics",
    "timeline",
    "graph",
    "quick",
)
_CHECK_OPTIONS = (*_FLAGS, "baseline", "statistics")
"""Parameters that go into CheckOptions alone; those beside them that have no name below go into Settings."""
OFF: dict[str, Any] = {"flag_value": False, "default": True}
"""A flag that takes away what is there without it."""


class _Check(click.Command):
    """Takes files whose names begin with a dash: git and hooks give names as they are."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        options = {name for each in self.params for name in (*each.opts, *each.secondary_opts)}
        return super().parse_args(context, [f"./{each}" if _is_dashed_file(each, options) else each for each in args])


def _is_dashed_file(argument: str, options: Container[str]) -> bool:
    return argument.startswith("-") and argument not in options and os.path.isfile(argument)  # noqa: PTH113 -- no name is too long


@click.command(cls=_Check)
@click.argument("paths", nargs=-1, metavar="[PATHS]...", shell_complete=completion.targets)
@workload_options()
@click.option("--plan", is_flag=True, help="Find changes that bring each workload below its budget, or into the GPU.")
@CHECK_OPTIONS
@click.option("--fix", is_flag=True, help="Correct files where that changes nothing but memory, and check the result.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: also corrections that need a second look.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option("--sweep/--no-sweep", default=None, help="Show the batch sizes around each workload's.  [default: yes]")
@click.option("--watch", is_flag=True, help="Check again whenever a file changes, and say in a line what that changed.")
@click.option("--no-cache", "cache", **OFF, help="Do everything anew, and keep nothing in .memlint_cache.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option("--no-exec", "execute", **OFF, help="Never run the code: source rules only.")
@click.option("--no-scripts", "ask_scripts", flag_value=False, default=None, help="Ask no script how it builds them.")
@click.option("--affected", is_flag=True, help="PATHS are changed files: of workloads only those with a part in them.")
@click.option("--force-exclude", is_flag=True, help="Leave out what `exclude` matches even if it is named.")
@click.option("--timeout", **SECONDS, help="For one file's code.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory one file's code may take.")
@click.option("--stub", **PACKAGES, help="Packages to do without: a placeholder fails when the model uses it.")
@CONFIG_OF
@click.option("--init", is_flag=True, help="Print the configuration that makes every assumption explicit.")
@COLOR
@click.option("-q", "--quiet", is_flag=True, help="Verdicts, errors and findings only.")
@click.option("-v", "--verbose", is_flag=True, help="Every row, and what the code wrote.")
def check(
    paths: tuple[str, ...],
    output_format: str,
    output_file: Path | None,
    add_ignore: bool,
    write_baseline: Path | None,
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    watch: bool,
    exit_zero: bool,
    color: str,
    quiet: bool,
    verbose: bool,
    **settings: Any,
) -> None:
    """Estimate the memory of models, and run the rules.

    PATHS are Python files, directories, file.py::Name for one class or function, or the config.json of a Hugging Face
    model; the current directory if none is given. In a directory only workloads that are declared are analysed, in a
    file that is named also models that memlint finds. Their code is run, in a child process: see --no-exec.

    Exit status: 0 clean, 1 a warning, an error or a limit exceeded, 2 something could not be analysed.
    """
    from memlint.commands.early import early_child  # noqa: PLC0415

    runs_once = settings["execute"] and not (watch or fix or diff)
    child = click.get_current_context().with_resource(
        early_child(paths if runs_once else (), cache=settings["cache"])
    )  # before the imports that follow, which take as long as a part of its own
    with long_lived(), quick_dataclasses():
        from memlint.commands.check import check as command  # noqa: PLC0415
        from memlint.commands.check.targets import CheckOptions  # noqa: PLC0415
        from memlint.commands.exit_status import exit_status  # noqa: PLC0415

    num_instead = settings["init"] + add_ignore + (write_baseline is not None)
    instead = num_instead > 0
    options = CheckOptions(
        thorough=verbose,
        sweep=not (instead or quiet or settings["quick"] or (settings["affected"] and not settings["sweep"])),
        **{name: settings.pop(name) for name in _CHECK_OPTIONS},
    )
    refuse(options, num_instead, unfixed=unsafe_fixes and not (fix or diff), written=write_baseline is not None)
    refuse_format(options, output_format, no_report=instead or diff)
    if not (paths or options.affected):
        paths = (".",)
    if watch:
        refuse_watch(output_format, output_file, others=instead or fix or diff or options.affected)
        _watch(paths, settings, options, color, verbose - quiet)
        return
    if fix or diff:
        fixed = command.corrections(paths, settings, options, unsafe=unsafe_fixes)
        if diff:
            write("".join(each.diff() for each in fixed), output_file, color=False)
            click.get_current_context().exit(int(bool(fixed) and not exit_zero))
        _write_fixed(fixed)
    verbosity, no_exec = verbose - (quiet or options.quick), not options.execute
    output = ReportOutput(output_format, output_file, color, verbosity=verbosity, no_exec=no_exec)
    with progress("planning" if options.plan else "analysing", None if instead else output) as show:
        checked = command.check(paths, settings, options, show, show.part, child)
    report = checked.report
    if verbose and output_format != "github":  # where what the code wrote would be obeyed
        print_outputs(checked.outputs)
    if options.init:
        click.echo("\n".join(checked.declarations), nl=False)
    elif add_ignore:
        add_comments(checked)
    elif write_baseline is not None:
        write_baseline_of(report, write_baseline)
    else:
        output.rest(report, "" if quiet or options.baseline is not None else _correctable(checked))
    if instead or output_file is not None or output_format not in WITH_ERRORS:
        print_errors(report)
    status = exit_status(report)
    only_findings = status == 1
    click.get_current_context().exit(0 if only_findings and (exit_zero or instead) else status)


def refuse(options: CheckOptions, num_instead: int, *, unfixed: bool = False, written: bool) -> None:
    """Raise UsageError for options that make no sense together."""
    if num_instead > 1:
        raise UsageError("--add-ignore, --write-baseline and --init exclude one another", "Give one of them.")
    if unfixed:
        raise UsageError("--unsafe-fixes does nothing by itself", "Add --fix, or --diff to see what would change.")
    if options.quick and (options.plan or options.statistics or num_instead):
        raise UsageError("--quick leaves out rules, plans and tables, and other options ask for them", "Leave one out.")
    if options.allow_dynamics and not options.plan:
        raise UsageError("--allow-dynamics does nothing by itself", "Add --plan, or leave it out.")
    if options.baseline is not None and written:
        raise UsageError("what --baseline leaves out would be missing in --write-baseline", "Leave --baseline out.")


def refuse_format(options: CheckOptions, output_format: str, *, no_report: bool = False) -> None:
    """Raise UsageError for a format that the other options leave no use for."""
    if output_format != "text" and no_report:
        raise UsageError(
            f"--init, --add-ignore, --write-baseline and --diff print no report that could be {output_format}",
            "Leave --output-format out, or run memlint a second time.",
        )
    if (options.timeline or options.graph) and output_format != "json":
        option = "--timeline" if options.timeline else "--graph"
        raise UsageError(f"{output_format} has no place for {option}", "Add --output-format json.")
    if options.statistics and output_format not in WITH_STATISTICS:
        raise UsageError(
            f"{output_format} lists findings and has no place for --statistics",
            f"Leave one of them out, or take --output-format {WITH_STATISTICS[1]}.",
        )


def refuse_watch(output_format: str, output_file: Path | None, *, others: bool) -> None:
    """Raise UsageError for what --watch has no use for."""
    if others:
        hint = "Leave one of them out."
        raise UsageError("--watch reports again and again, and --init, --fix and the like do not", hint)
    if output_format != "text" or output_file is not None:
        raise UsageError("--watch shows its reports as text, on the terminal", "Leave --output-format and -o out.")


def _watch(paths: tuple[str, ...], settings: dict[str, Any], options: CheckOptions, color: str, verbosity: int) -> None:
    """Print the report, and then a line for each change, until it is interrupted."""
    from memlint.commands.check.watching import watch  # noqa: PLC0415
    from memlint.report.escaping import inert, one_line  # noqa: PLC0415

    with progress() as show:
        for seen in watch(paths, settings, options, show):
            show_progress("")
            if seen.difference:
                click.echo(inert(one_line(seen.difference)))
            else:
                write_report(seen.checked.report, "text", None, text_style_of(color, None, verbosity=verbosity))


def add_comments(checked: Checked) -> None:
    """Write a comment that suppresses each finding."""
    from memlint.commands.check import add_ignore  # noqa: PLC0415

    added = add_ignore.add_comments(checked.report.findings, checked.files)
    click.echo(f"Suppressed {format_count(added.num_findings, 'finding')} in {format_count(len(added.files), 'file')}.")
    for finding, reason in added.left:
        click.echo(f"{finding.path}:{finding.line}: {finding.code} is left: {reason}", err=True)


def _write_fixed(fixed: list[Fixed]) -> None:
    for each in fixed:
        each.write()
        corrected = ", ".join(f"{count} x {code}" for code, count in sorted(Counter(each.codes).items()))
        click.echo(f"corrected {each.path}: {corrected}", err=True)


def _correctable(checked: Checked) -> str:
    """How many findings `--fix` would take away, as the last line of a report."""
    from memlint.lint.rule import Applicability  # noqa: PLC0415

    safe, unsafe = (checked.correctable[each] for each in (Applicability.SAFE, Applicability.UNSAFE))
    if not safe + unsafe:
        return ""
    if not safe:
        return f"{format_count(unsafe, 'finding')} can be corrected by --fix --unsafe-fixes.\n"
    more = f", {unsafe} more by --fix --unsafe-fixes" if unsafe else ""
    return f"{format_count(safe, 'finding')} can be corrected by --fix{more}.\n"


def write_baseline_of(report: Report, file: Path) -> None:
    """Write what a later run is to leave out."""
    from memlint.lint.baseline import Baseline  # noqa: PLC0415

    baseline = Baseline.of(report.findings, file)
    baseline.write()
    click.echo(f"Wrote {format_count(baseline.counts.total(), 'finding')} into {file}.")

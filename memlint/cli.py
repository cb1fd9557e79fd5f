"""The command `memlint`: the only place that prints or exits.

Everything beyond click is imported inside the commands, so that `memlint --help` is immediate.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from memlint import __version__
from memlint.errors import MemlintError, UsageError
from memlint.report.formats import FORMATS, WITH_ERRORS, WITH_STATISTICS, render

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlint.check import Run
    from memlint.lint.fixes import Fixed
    from memlint.lint.registry import Registry
    from memlint.report.look import Look
    from memlint.report.model import Report
    from memlint.scaling.gather import Result, Told

DTYPES = ("float32", "bfloat16", "float16", "bf16-amp", "fp16-amp")
MODES = ("train", "inference")
_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_NO_LOCAL_RULES = click.option("--no-exec", is_flag=True, help="Leave out the rules in rule-paths: their code is run.")
_PATIENCE = 1.0  # seconds before progress is shown


def _by_comma(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of an option's values."""
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def _sizes(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, int] | None:
    """Sizes by name of `--dim NAME=SIZE`; None without any."""
    from memlint.workload.records import LARGEST_SIZE  # noqa: PLC0415

    sizes = {}
    for text in texts:
        name, separator, size = (part.strip() for part in text.partition("="))
        if name == "batch":
            raise UsageError(f"--dim {text} is the batch size", "Write --batch N.")
        if not separator or not name.isidentifier():
            raise UsageError(f"--dim {text!r} is not a name and a size", "Write --dim seq=2048.")
        number = int(size) if size.isdecimal() and len(size) <= len(str(LARGEST_SIZE)) else 0
        if not 1 <= number <= LARGEST_SIZE:
            raise UsageError(
                f"--dim {text}: {size!r} is not a size",
                f"Write a whole number from 1 to {LARGEST_SIZE}, as in --dim {name}=2048.",
            )
        sizes[name] = number
    return sizes or None


_CODES: dict[str, Any] = {"metavar": "CODES", "multiple": True, "callback": _by_comma}


class _Group(click.Group):
    """Commands whose MemlintErrors are one clear message and exit status 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MemlintError as error:
            _print_error(error.message, error.hint)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception:  # an exit status of 1 would be taken for findings
            traceback.print_exc()
            _print_error("memlint failed", "This is a mistake in memlint: please report it with the lines above.")
            ctx.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="memlint %(version)s")
def main() -> None:
    """Say how much GPU memory a PyTorch training step takes, and what would lower it. Needs no GPU."""
    gc.set_threshold(100_000)  # looking for cycles among what is imported takes a tenth of a short run


@main.command()
@click.argument("paths", nargs=-1, metavar="[PATHS]...")
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Batch size.")
@click.option(
    "--dim", "dimensions", multiple=True, metavar="NAME=SIZE", callback=_sizes, help="Another dimension, as seq=2048."
)
@click.option("--dtype", type=click.Choice(DTYPES), help="Type of the weights, or float32 with autocast (-amp).")
@click.option("--mode", type=click.Choice(MODES), help="What a step is.")
@click.option("--optimizer", metavar="NAME", help="Name, file.py::callable, or none.")
@click.option("--gpu", metavar="NAME", help="GPU to estimate for, such as a100-80gb; cpu for the host.")
@click.option("--budget", metavar="SIZE", help="Most device memory a workload may take, such as 24GiB.")
@click.option("--plan", is_flag=True, help="Find changes that bring each workload below its budget, or into the GPU.")
@click.option("--allow-dynamics", is_flag=True, help="With --plan: also changes of the course of training.")
@click.option("--select", **_CODES, help="Rules to run: codes or their beginnings, by comma.")
@click.option("--extend-select", **_CODES, help="Rules to run beside those configured.")
@click.option("--ignore", **_CODES, help="Rules to leave out.")
@click.option("--output-format", type=click.Choice(("text", *FORMATS)), default="text", show_default=True)
@click.option("-o", "--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the report there.")
@click.option("--statistics", is_flag=True, help="Count the findings of each rule instead of listing them.")
@click.option("--add-ignore", is_flag=True, help="Write suppression comments for all findings into the files.")
@click.option("--baseline", type=_FILE, help="Leave out the findings in this file.")
@click.option("--write-baseline", type=_FILE, help="Write all findings into this file, for --baseline.")
@click.option("--fix", is_flag=True, help="Correct files where that changes nothing but memory, and check the result.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: also corrections that need a second look.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option("--sweep/--no-sweep", default=None, help="Show the batch sizes around each workload's.  [default: yes]")
@click.option("--no-cache", is_flag=True, help="Do everything anew, and keep nothing in .memlint_cache.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option("--no-exec", is_flag=True, help="Never run the code: source rules only.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="For one file's code.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory one file's code may take.")
@click.option("--init", is_flag=True, help="Print the configuration that makes every assumption explicit.")
@click.option("--color", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="Verdicts, errors and findings only.")
@click.option("-v", "--verbose", is_flag=True, help="Every row, and what the code wrote.")
def check(
    paths: tuple[str, ...],
    plan: bool,
    allow_dynamics: bool,
    output_format: str,
    output_file: Path | None,
    statistics: bool,
    add_ignore: bool,
    baseline: Path | None,
    write_baseline: Path | None,
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    no_cache: bool,
    exit_zero: bool,
    no_exec: bool,
    init: bool,
    color: str,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Estimate the memory of models, and run the rules.

    PATHS are Python files, directories, file.py::Name for one class or function, or the config.json of a Hugging Face
    model; the current directory if none is given. In a directory only workloads that are declared are analysed, in a
    file that is named also models that memlint finds. Their code is run, in a child process: see --no-exec.

    Exit status: 0 clean, 1 findings or a limit exceeded, 2 something could not be analysed.
    """
    from memlint import check as checking  # noqa: PLC0415
    from memlint.report.text import render_text  # noqa: PLC0415

    _refuse(
        several=add_ignore + init + (write_baseline is not None) > 1,
        idle=unsafe_fixes and not (fix or diff),
        partial=baseline is not None and write_baseline is not None,
    )
    instead = init or add_ignore or write_baseline is not None
    _refuse_format(output_format, statistics=statistics, no_report=instead or diff)
    paths = paths or (".",)
    how = {"execute": not no_exec, "cache": not no_cache}
    planning = {"plan": plan, "allow_dynamics": allow_dynamics, "thorough": verbose}
    if fix or diff:
        fixed = checking.corrections(paths, options, **how, unsafe=unsafe_fixes)
        if diff:
            _write("".join(each.diff() for each in fixed), output_file, color=False)
            click.get_current_context().exit(int(bool(fixed) and not exit_zero))
        _write_fixed(fixed)
    show, clear = _progress("planning" if plan else "analysing")
    try:
        run = checking.check(
            paths, options, **how, **planning, init=init, baseline=baseline, sweep=not (instead or quiet), on_wait=show
        )
    finally:
        clear()
    report = run.report(statistics=statistics)
    if verbose and output_format != "github":  # where what the code wrote would be obeyed
        _print_outputs(run.outputs)
    if init:
        click.echo("\n".join(run.declarations), nl=False)
    elif add_ignore:
        _add_comments(report, run)
    elif write_baseline is not None:
        _write_baseline(report, write_baseline)
    elif output_format != "text":
        _write(render(report, output_format, lambda: _registry(no_exec).rules), output_file, color=False)
    else:
        look = _look(color, output_file, verbosity=verbose - quiet)
        _write(
            render_text(report, look) + _correctable(run, quiet=quiet or baseline is not None),
            output_file,
            color=look.color,
        )
    if instead or output_file is not None or output_format not in WITH_ERRORS:
        _print_errors(report)
    status = checking.exit_status(report)
    only_findings = status == 1
    click.get_current_context().exit(0 if only_findings and (exit_zero or instead) else status)


@main.command()
@click.argument("targets", nargs=-1, metavar="[TARGETS]...")
@click.option("--suite", type=click.Path(dir_okay=False, path_type=Path), help="TOML file of workloads to measure.")
@click.option("--device", type=click.Choice(("cuda", "cpu")), default="cuda", show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=2, show_default=True, help="Steps, after one of warm-up.")
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Batch size.")
@click.option("--dtype", type=click.Choice(DTYPES), help="Type of the weights, or float32 with autocast (-amp).")
@click.option("--mode", type=click.Choice(MODES), help="What a step is.")
@click.option("--optimizer", metavar="NAME", help="Name, file.py::callable, or none.")
@click.option("--record", type=click.Path(file_okay=False, path_type=Path), help="Keep measurements there, and resume.")
@click.option("--history", is_flag=True, help="Keep the allocator's history as well.")
@click.option("--no-compare", is_flag=True, help="Only measure.")
@click.option("--against", type=click.Path(file_okay=False, exists=True, path_type=Path), help="Recorded measurements.")
@click.option("--cap", is_flag=True, help="Run again with the estimate as a hard limit.")
@click.option("--events", is_flag=True, help="Show which allocations differ, in order.")
@click.option("--only", metavar="TEXT", multiple=True, help="Only workloads whose names have TEXT in them.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="For one workload.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory one workload may take.")
@click.option("--output-format", type=click.Choice(("text", "json", "markdown")), default="text", show_default=True)
@click.option("-o", "--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the result there.")
@click.option("--color", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True)
def validate(
    targets: tuple[str, ...], output_format: str, output_file: Path | None, color: str, **options: Any
) -> None:
    """Run workloads for real, and hold the estimates against what the device says.

    TARGETS are as those of check. Every workload runs in a process of its own. With --record an interrupted suite
    keeps what it has, and the same command goes on from there. With --against nothing runs: today's estimates are held
    against recorded measurements, on any machine.

    Exit status: 0 all is well, 1 an estimate is more than 1 % too low or did not hold as a limit, 2 something could not
    be measured or estimated.
    """
    from memlint.validate import command  # noqa: PLC0415

    show, clear = _progress()

    def tell(text: str) -> None:
        clear()
        click.echo(text, err=True)

    try:
        result = command.validate(targets, command.Options(**options), on_wait=show, tell=tell)
    finally:
        clear()
    look = _look(color, output_file, verbosity=0)
    _write(result.rendered(output_format, look), output_file, color=look.color)
    for name, error in result.errors:
        _print_error(f"{name}: {error.message}", error.hint)
    click.get_current_context().exit(result.status)


@main.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGETS...")
@click.option("--batch", default="1:512", show_default=True, metavar="SIZES", help="1,8,32, or 1:512 for 1, 2, 4, ...")
@click.option("--dtype", metavar="NAMES", help="One or several by comma, or all; by default the workload's.")
@click.option("--gpu", metavar="NAMES", help="One or several by comma; by default the workload's.")
@click.option("--seq", metavar="SIZES", help="Sequence lengths: short for --dim seq=SIZES.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZES", help="Sizes of a dimension the workload declares.")
@click.option("--mode", type=click.Choice(MODES), help="What a step is.")
@click.option("--optimizer", metavar="NAME", help="Name, file.py::callable, or none.")
@click.option("--output-format", type=click.Choice(("text", "json", "csv", "markdown")), default="text")
@click.option("-o", "--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the table there.")
@click.option(
    "--executor", type=click.Choice(("local", "ray")), default="local", show_default=True, help="Where it is done."
)
@click.option("--address", metavar="HOST:PORT", help="With --executor ray: the cluster, or auto; else one is started.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="For one analysis.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory one file's code may take.")
@click.option("--color", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True)
def sweep(
    targets: tuple[str, ...],
    batch: str,
    dtype: str | None,
    gpu: str | None,
    seq: str | None,
    dims: tuple[str, ...],
    output_format: str,
    output_file: Path | None,
    executor: str,
    address: str | None,
    color: str,
    **options: Any,
) -> None:
    """Say what every batch size takes, and which is the largest that fits.

    TARGETS are as those of check. A few batch sizes are traced; the others follow from these, and are held against one
    more trace. An interrupted sweep prints what it has.

    Exit status: 0 all tables are there, 2 something could not be analysed, 130 interrupted.
    """
    from memlint.scaling import command  # noqa: PLC0415
    from memlint.scaling.text import render  # noqa: PLC0415

    run = command.executor_of(executor, address)
    order = command.order_of(batch, dtype, gpu, (*dims, *([f"seq={seq}"] if seq else ())))
    show, clear = _progress()
    try:
        result = command.sweep(targets, order, options, on_wait=show, executor=run)
    finally:
        clear()
    _show(result, render, output_format, output_file, color)


@main.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGETS...")
@click.option("--gpu", metavar="NAMES", help="One or several by comma; by default the workload's.")
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Batch size to train with, in parts if need be.")
@click.option("--dtype", type=click.Choice(DTYPES), help="Type of the weights, or float32 with autocast (-amp).")
@click.option("--mode", type=click.Choice(MODES), help="What a step is.")
@click.option("--optimizer", metavar="NAME", help="Name, file.py::callable, or none.")
@click.option("--output-format", type=click.Choice(("text", "json", "markdown")), default="text", show_default=True)
@click.option("-o", "--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the result there.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="For one analysis.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory one file's code may take.")
@click.option("--color", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True)
def fit(
    targets: tuple[str, ...],
    gpu: str | None,
    output_format: str,
    output_file: Path | None,
    color: str,
    **options: Any,
) -> None:
    """Say which batch fits into a GPU: as it is, and with changes that keep what is trained.

    TARGETS are as those of check. For each way it says the largest batch, and into how many parts the batch asked for
    has to be cut. No change of another batch size, of fewer trained parameters or of the weights' type is tried.

    Exit status: 0 all is there, 2 something could not be analysed, 130 interrupted.
    """
    from memlint.scaling import fit_command  # noqa: PLC0415
    from memlint.scaling.fit_text import render  # noqa: PLC0415

    show, clear = _progress("fitting")
    try:
        result = fit_command.fit(targets, gpu, options, on_wait=show)
    finally:
        clear()
    _show(result, render, output_format, output_file, color)


@main.command()
def clean() -> None:
    """Remove the cache of the project around the current directory: .memlint_cache."""
    from memlint import cachedir  # noqa: PLC0415
    from memlint.config import find_settings  # noqa: PLC0415

    removed = cachedir.clean(find_settings(Path())[1])
    click.echo(f"Removed {removed}." if removed else "There is no cache here.")


@main.command()
@click.argument("code", required=False)
@click.option("--all", "every", is_flag=True, help="List all rules.")
@_NO_LOCAL_RULES
def rule(code: str | None, every: bool, no_exec: bool) -> None:
    """Explain a rule, named by its code or name."""
    from memlint.lint.pages import page  # noqa: PLC0415

    if every:
        click.get_current_context().invoke(rules, output_format="text", no_exec=no_exec)
    elif code is None:
        raise UsageError("which rule?", "Give its code, such as MEM107, or --all.")
    else:
        click.echo(page(_registry(no_exec)[code]), nl=False)


@main.command()
@click.option("--output-format", type=click.Choice(("text", "json")), default="text", show_default=True)
@_NO_LOCAL_RULES
def rules(output_format: str, no_exec: bool) -> None:
    """List the installed rules, and those of the project."""
    import json  # noqa: PLC0415

    from memlint.lint.pages import looks_at  # noqa: PLC0415
    from memlint.report.look import table  # noqa: PLC0415

    registry = _registry(no_exec)
    if output_format == "json":
        entries = [
            {
                "code": rule.code,
                "name": rule.name,
                "severity": rule.severity.value,
                "summary": rule.summary,
                "looks_at": looks_at(rule),
                "module": type(rule).__module__,
            }
            for rule in registry.rules
        ]
        click.echo(json.dumps(entries, indent=2))
    else:
        rows = [(rule.code, rule.name, rule.severity.value, rule.summary) for rule in registry.rules]
        click.echo("\n".join(table(rows, ("left",) * 4)))
    for problem in registry.problems:
        _print_error(problem.message, problem.fix)


@main.command()
@click.argument("code")
@click.argument("name")
@click.option("--path", type=_FOLDER, help="Folder for it: by default the first of rule-paths, or lint_rules.")
@_NO_LOCAL_RULES
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


@main.command()
@click.argument("subjects", nargs=-1, required=True, metavar="PATH|CODE...")
@click.option("-q", "--quiet", is_flag=True, help="Failures only.")
def test(subjects: tuple[str, ...], quiet: bool) -> None:
    """Run the cases of rules: the bad ones must be found, the good ones not.

    PATH is a file or folder of rules, CODE the code or name of an installed rule or of one of the project.

    Exit status: 0 all cases passed, 1 a case or a rule failed.
    """
    from memlint.config import find_settings  # noqa: PLC0415
    from memlint.lint.cases import find_subjects, run_cases  # noqa: PLC0415

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
    click.echo(f"{failed} of {_number(count, 'case')} failed." if failed else f"{_number(count, 'case')} passed.")
    click.get_current_context().exit(int(failed > 0))


def _show(
    result: Result[Told], render: Callable[[Told, str, Look], str], form: str, file: Path | None, color: str
) -> NoReturn:
    """Write what a sweep or a fit says, and what went wrong, and exit."""
    look = _look(color, file, verbosity=0)
    _write(render(result.told, form, look), file, color=look.color)
    for failure in result.failures:
        _print_error(f"{failure.target}: {failure.message}", failure.hint)
    click.get_current_context().exit(result.status)


def _registry(no_exec: bool) -> Registry:
    """The installed rules, and those of the project around the current directory if its code may be run."""
    from memlint.config import find_settings  # noqa: PLC0415
    from memlint.lint.registry import project_rules  # noqa: PLC0415

    return project_rules(*find_settings(Path()), execute=not no_exec)


def _add_comments(report: Report, run: Run) -> None:
    from memlint.lint.adding import add_comments  # noqa: PLC0415

    added = add_comments(report.findings, run.files)
    click.echo(f"Suppressed {_number(added.num_findings, 'finding')} in {_number(len(added.files), 'file')}.")
    for finding, reason in added.left:
        click.echo(f"{finding.path}:{finding.line}: {finding.code} is left: {reason}", err=True)


def _refuse(*, several: bool, idle: bool, partial: bool) -> None:
    """Raise UsageError for options of `check` that make no sense together."""
    if several:
        raise UsageError("--add-ignore, --write-baseline and --init exclude one another", "Give one of them.")
    if idle:
        raise UsageError("--unsafe-fixes does nothing by itself", "Add --fix, or --diff to see what would change.")
    if partial:
        raise UsageError("what --baseline leaves out would be missing in --write-baseline", "Leave --baseline out.")


def _refuse_format(output_format: str, *, statistics: bool, no_report: bool) -> None:
    """Raise UsageError for a format of `check` that the other options leave no use for."""
    if output_format != "text" and no_report:
        raise UsageError(
            f"--init, --add-ignore, --write-baseline and --diff print no report that could be {output_format}",
            "Leave --output-format out, or run memlint check a second time.",
        )
    if statistics and output_format not in WITH_STATISTICS:
        raise UsageError(
            f"{output_format} lists findings and has no place for --statistics",
            f"Leave one of them out, or take --output-format {WITH_STATISTICS[1]}.",
        )


def _write_fixed(fixed: list[Fixed]) -> None:
    for each in fixed:
        each.write()
        corrected = ", ".join(f"{count} x {code}" for code, count in sorted(Counter(each.codes).items()))
        click.echo(f"corrected {each.path}: {corrected}", err=True)


def _correctable(run: Run, *, quiet: bool) -> str:
    """How many findings `--fix` would take away, as the last line of a report."""
    from memlint.lint.rule import Applicability  # noqa: PLC0415

    safe, unsafe = run.correctable[Applicability.SAFE], run.correctable[Applicability.UNSAFE]
    if quiet or not safe + unsafe:
        return ""
    if not safe:
        return f"{_number(unsafe, 'finding')} can be corrected by --fix --unsafe-fixes.\n"
    more = f", {unsafe} more by --fix --unsafe-fixes" if unsafe else ""
    return f"{_number(safe, 'finding')} can be corrected by --fix{more}.\n"


def _write_baseline(report: Report, file: Path) -> None:
    from memlint.lint.baseline import Baseline  # noqa: PLC0415

    baseline = Baseline.of(report.findings, file)
    baseline.write()
    click.echo(f"Wrote {_number(baseline.counts.total(), 'finding')} into {file}.")


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _look(color: str, output_file: Path | None, *, verbosity: int) -> Look:
    """How text looks where it goes. NO_COLOR, FORCE_COLOR and CLICOLOR_FORCE decide where --color does not."""
    from memlint.report.look import Look  # noqa: PLC0415

    terminal = output_file is None and sys.stdout.isatty()
    if color == "auto" and os.environ.get("NO_COLOR"):
        color = "never"
    elif color == "auto" and (os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE")):
        color = "always"
    encoding = "utf-8" if output_file is not None else (sys.stdout.encoding or "ascii")
    return Look(
        color=color == "always" or (color == "auto" and terminal),
        width=shutil.get_terminal_size((100, 24)).columns,
        blocks=encoding.lower().replace("-", "") == "utf8",
        verbosity=verbosity,
    )


def _write(text: str, file: Path | None, *, color: bool) -> None:
    if file is None:
        encoding = sys.stdout.encoding or "ascii"
        click.echo(text.encode(encoding, "replace").decode(encoding), nl=False, color=color)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}", "Give another --output-file.") from error


def _progress(doing: str = "analysing") -> tuple[Callable[[str, float], None], Callable[[], None]]:
    """What shows on a terminal which target is being analysed, and what wipes it away."""
    if not sys.stderr.isatty():
        return lambda _target, _seconds: None, lambda: None

    def show(target: str, seconds: float) -> None:
        if seconds > _PATIENCE:
            click.echo(f"\r\033[K{doing} {target} ({seconds:.0f} s)", err=True, nl=False)

    return show, lambda: click.echo("\r\033[K", err=True, nl=False)


def _print_outputs(outputs: list[tuple[str, str, str]]) -> None:
    for target, stdout, stderr in outputs:
        for name, text in (("stdout", stdout), ("stderr", stderr)):
            if text:
                click.echo(f"--- {name} of {target}\n{text.rstrip()}", err=True)


def _print_errors(report: Report) -> None:
    for workload in report.workloads:
        if workload.error is not None:
            _print_error(f"{workload.target}: {workload.error.message}", workload.error.hint)


def _print_error(message: str, hint: str) -> None:
    click.echo(f"{click.style('error', fg='red', bold=True)}: {message}", err=True)
    if hint:
        click.echo(f"  {click.style('help', fg='cyan', bold=True)}: {hint}", err=True)

"""`memlint run`."""

from pathlib import Path
from typing import Any

import click

from memlint.base.errors import UsageError
from memlint.cli.check import add_comments, refuse, refuse_format, write_baseline_of
from memlint.cli.options import CHECK_OPTIONS, COLOR, SECONDS, torch_option
from memlint.cli.printing import print_errors, print_outputs, progress, write_report
from memlint.report.formats import WITH_ERRORS

_SCRIPT = ("steps", "whole", "batches", "ranks", "rank", "fake_data", "keep_writes", "repeat")
"""Parameters that go into the Script; those beside them that have no name below go into Settings."""
_CHECK_OPTIONS = ("timeline", "graph", "plan", "allow_dynamics", "baseline", "statistics")


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module, run as `python -m` does.")
@click.option("--steps", type=click.IntRange(min=1), default=2, show_default=True, help="Optimizer steps to take.")
@click.option("--whole", is_flag=True, help="Run to the end, evaluation and saving included, on a few batches each.")
@click.option("--batches", type=click.IntRange(min=1), default=3, show_default=True, help="With --whole: of a loader.")
@click.option("--ranks", type=click.IntRange(min=1), metavar="N", help="As one of N ranks of torchrun.")
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, help="Which of them.")
@click.option("--fake-data", is_flag=True, help="Make up data that is not there.")
@click.option("--keep-writes", is_flag=True, help="Let the script write its files, and not into a scratch folder.")
@click.option("--repeat", is_flag=True, help="Run evaluation batches of one shape again, each of them.")
@click.option("--gpu", metavar="NAME", help="GPU to estimate for, such as a100-80gb.")
@torch_option()
@click.option("--budget", metavar="SIZE", help="Most device memory it may take, such as 24GiB.")
@click.option("--plan", is_flag=True, help="Find changes that bring it below its budget, or into the GPU.")
@CHECK_OPTIONS
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option("--time-limit", "timeout", **SECONDS, help="For the script.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory it may take.")
@COLOR
@click.option("-q", "--quiet", is_flag=True, help="Verdict, errors and findings only.")
@click.option("-v", "--verbose", is_flag=True, help="Every row, and what the script wrote.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    script: str,
    arguments: tuple[str, ...],
    is_module: bool,
    output_format: str,
    output_file: Path | None,
    add_ignore: bool,
    write_baseline: Path | None,
    exit_zero: bool,
    color: str,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Estimate the memory of a training script by running it, unmodified, on a simulated GPU.

    `python train.py --lr 3e-4` and `torchrun train.py --lr 3e-4` become `memlint run train.py --lr 3e-4`. It runs until
    a few optimizer steps were taken, in a child process; files that it writes go into a scratch folder.

    Exit status: 0 clean, 1 a warning, an error or a limit exceeded, 2 the script failed or did not get so far.
    """
    from memlint.commands.check.targets import CheckOptions  # noqa: PLC0415
    from memlint.commands.exit_status import exit_status  # noqa: PLC0415
    from memlint.commands.run import command  # noqa: PLC0415
    from memlint.script.spec import Script  # noqa: PLC0415

    of_check = {name: options.pop(name) for name in _CHECK_OPTIONS}
    check_options = CheckOptions(**of_check, thorough=verbose, cache=False)
    num_instead = add_ignore + (write_baseline is not None)
    refuse(check_options, num_instead, written=write_baseline is not None)
    refuse_format(check_options, output_format, no_report=num_instead > 0)
    fields = {name: options.pop(name) for name in _SCRIPT}
    if fields["rank"] >= (fields["ranks"] or 1):
        raise UsageError(f"there is no rank {fields['rank']}", "They count from 0: --ranks 8 --rank 7 is the last.")
    path, module = ("", script) if is_module else (script, "")
    program = Script(name=module or Path(path).stem, path=path, module=module, arguments=arguments, **fields)
    with progress("planning" if check_options.plan else "running") as show:
        checked = command.run(program, options, check_options, show)
    report = checked.report
    if verbose and output_format != "github":  # where what the script wrote would be obeyed
        print_outputs(checked.outputs)
    if add_ignore:
        add_comments(checked)
    elif write_baseline is not None:
        write_baseline_of(report, write_baseline)
    else:
        write_report(report, output_format, output_file, color, verbosity=verbose - quiet)
    if num_instead or output_file is not None or output_format not in WITH_ERRORS:
        print_errors(report)
    status = exit_status(report)
    click.get_current_context().exit(0 if status == 1 and (exit_zero or num_instead) else status)

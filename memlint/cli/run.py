"""`memlint run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlint.base.errors import UsageError
from memlint.base.garbage import long_lived
from memlint.base.quick_dataclasses import quick_dataclasses
from memlint.cli import completion
from memlint.cli.check import add_comments, refuse, refuse_format, write_baseline_of
from memlint.cli.options import (
    CHECK_OPTIONS,
    COLOR,
    CONFIG_OF,
    FILE,
    PACKAGES,
    SECONDS,
    compile_option,
    context_option,
    rank_of,
    torch_option,
)
from memlint.cli.printing import ReportOutput, print_errors, print_outputs, progress
from memlint.report.formats import WITH_ERRORS

if TYPE_CHECKING:
    from memlint.commands.parts import OnPart, Part

_SCRIPT = ("steps", "whole", "batches", "ranks", "rank", "fake_data", "seq", "config_of", "keep_writes", "repeat")
"""Parameters that go into the Script; those beside them that have no name below go into Settings."""
_CHECK_OPTIONS = ("alloc_conf", "timeline", "graph", "plan", "quick", "allow_dynamics", "baseline", "statistics")
_OF_SCRIPT = "Give the script its own argument, behind its name: memlint run train.py --batch-size 8."
_OF_FILES = "They are for files: memlint check."
REFUSED = {
    **dict.fromkeys(("--batch", "--dim", "--mode", "--optimizer"), _OF_SCRIPT),
    **dict.fromkeys(("--prompt", "--new-tokens", "--num-beams", "--cache"), _OF_SCRIPT),
    "--dtype": f"{_OF_SCRIPT} What bfloat16 or autocast would save, --plan and the rules say.",
    "--strategy": "What the script does with its ranks counts: --ranks N --rank K.",
    **dict.fromkeys(("--sweep", "--no-sweep"), f"Each size is a run of its own. {_OF_SCRIPT}"),
    **dict.fromkeys(("--fix", "--unsafe-fixes", "--diff"), "Files are corrected by memlint check --fix FILE."),
    "--watch": "Run it again after a change, or watch the models of a file: memlint check --watch FILE.",
    "--no-cache": "Leave it out: nothing of a script is kept, it runs every time.",
    "--no-scripts": "Leave it out: it keeps `memlint check` from running scripts.",
    "--no-exec": "Source rules look at the script without running it: memlint check --no-exec FILE.",
    **dict.fromkeys(("--affected", "--force-exclude"), _OF_FILES),
    "--init": 'Declare it so that check, diff and comment run it: [[tool.memlint.workload]] with script = "train.py" '
    'and args = ["--lr", "3e-4"].',
}
"""Options of `check` that say nothing of a script, and what to type instead."""


class _Run(click.Command):
    """Says of options that only `check` has what to type instead."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(context, args)
        except click.NoSuchOption as error:
            if error.option_name in REFUSED:
                raise UsageError(f"memlint run has no {error.option_name}", REFUSED[error.option_name]) from None
            raise


@click.command(cls=_Run, context_settings={"allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module, run as `python -m` does.")
@click.option("-u", "-B", "-O", is_flag=True, expose_value=False, help="Options of Python: they change nothing here.")
@click.option("-W", "-X", metavar="TEXT", multiple=True, expose_value=False, help="Nor do these.")
@click.option("--steps", type=click.IntRange(min=1), default=2, show_default=True, help="Optimizer steps to take.")
@click.option("--whole", is_flag=True, help="Run to the end, evaluation and saving included, on a few batches each.")
@click.option("--batches", type=click.IntRange(min=1), default=3, show_default=True, help="With --whole: of a loader.")
@click.option("--ranks", type=click.IntRange(min=1), metavar="N", help="As one of N ranks of torchrun.")
@click.option("--rank", metavar="K", default="0", show_default=True, callback=rank_of, help="Which of them.")
@click.option(
    "--fake-data/--no-fake-data",
    default=None,
    help="Make up data that is not there: at once, or never.  [default: if the script ends for want of it]",
)
@click.option("--seq", type=click.IntRange(min=1), metavar="N", help="Words of each text of fake data.")
@CONFIG_OF
@click.option("--keep-writes", is_flag=True, help="Let the script write its files, and not into a scratch folder.")
@click.option("--repeat", is_flag=True, help="Run evaluation batches of one shape again, each of them.")
@click.option("--gpu", metavar="NAME", shell_complete=completion.gpus, help="GPU to estimate for, such as a100-80gb.")
@torch_option()
@context_option()
@compile_option()
@click.option("--budget", metavar="SIZE", help="Most device memory it may take, such as 24GiB.")
@click.option("--plan", is_flag=True, help="Find changes that bring it below its budget, or into the GPU.")
@CHECK_OPTIONS
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option("--capture", "capture_file", type=FILE, help="Write what the run said into this file as well.")
@click.option("--time-limit", "--timeout", "timeout", **SECONDS, help="For the script.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory it may take.")
@click.option("--stub", **PACKAGES, help="Packages to do without: a placeholder does nothing.")
@COLOR
@click.option("-q", "--quiet", is_flag=True, help="Verdict, errors and findings only.")
@click.option("-v", "--verbose", is_flag=True, help="Every row, and what the script wrote.")
@click.argument("script", shell_complete=completion.targets)
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
    capture_file: Path | None,
    color: str,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Estimate the memory of a training script by running it, unmodified, on a simulated GPU.

    `python train.py --lr 3e-4` becomes `memlint run train.py --lr 3e-4`; before `torchrun`, `accelerate launch`,
    `deepspeed`, `uv run` or a shell script with such a line, type `memlint run`. It runs until a few optimizer steps
    were taken, in a child process; files that it writes go into a scratch folder.

    Exit status: 0 clean, 1 a warning, an error or a limit exceeded, 2 the script failed or did not get so far.
    """
    with long_lived(), quick_dataclasses():
        from memlint.commands.check.targets import CheckOptions  # noqa: PLC0415
        from memlint.commands.exit_status import exit_status  # noqa: PLC0415
        from memlint.commands.run import run as command  # noqa: PLC0415
        from memlint.targets.script import Script  # noqa: PLC0415

    of_check = {name: options.pop(name) for name in _CHECK_OPTIONS}
    check_options = CheckOptions(**of_check, thorough=verbose, cache=False)
    num_instead = add_ignore + (write_baseline is not None)
    refuse(check_options, num_instead, written=write_baseline is not None)
    refuse_format(check_options, output_format, no_report=num_instead > 0)
    fields = {name: options.pop(name) for name in _SCRIPT}
    started = command.started_by((script, *arguments), is_module=is_module)
    started["ranks"] = fields["ranks"] = fields["ranks"] or started.get("ranks")
    if fields["rank"] == "worst":
        raise UsageError("each rank is a run of its own", "Give its number: --ranks 8 --rank 7 is the last.")
    if fields["rank"] >= (fields["ranks"] or 1):
        raise UsageError(f"there is no rank {fields['rank']}", "They count from 0: --ranks 8 --rank 7 is the last.")
    program = Script(**{**fields, **started})
    output = ReportOutput(output_format, output_file, color, verbosity=verbose - (quiet or check_options.quick))
    with progress("planning" if check_options.plan else "running", None if num_instead else output) as show:
        checked = command.run(program, options, check_options, show, _saving(show.part, capture_file))
    report = checked.report
    if verbose and output_format != "github":  # where what the script wrote would be obeyed
        print_outputs(checked.outputs)
    if add_ignore:
        add_comments(checked)
    elif write_baseline is not None:
        write_baseline_of(report, write_baseline)
    else:
        output.rest(report)
    if num_instead or output_file is not None or output_format not in WITH_ERRORS:
        print_errors(report)
    status = exit_status(report)
    click.get_current_context().exit(0 if status == 1 and (exit_zero or num_instead) else status)


def _saving(on_part: OnPart, file: Path | None) -> OnPart:
    """Write the Capture among the parts into `file`, and pass all of them on. Raises UsageError for another suffix."""
    from memlint.capture.capture import Capture  # noqa: PLC0415
    from memlint.capture.codec import SUFFIX, save  # noqa: PLC0415

    if file is None:
        return on_part
    if file.suffix != SUFFIX:
        raise UsageError(f"{file} is not called as a capture", f"End it in {SUFFIX}.")

    def pass_on(part: Part) -> None:
        if isinstance(part, Capture):
            save(part, file)
        on_part(part)

    return pass_on

"""`memlint validate`."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from memlint.cli import completion
from memlint.cli.options import (
    COLOR,
    EXISTING_FOLDER,
    FILE,
    FOLDER,
    SECONDS,
    context_option,
    format_option,
    step_options,
)
from memlint.cli.printing import print_error, progress, show_progress, text_style_of, write


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGETS]...", shell_complete=completion.targets)
@click.option("--suite", type=FILE, help="TOML file of workloads to measure.")
@click.option("--device", type=click.Choice(("cuda", "cpu")), default="cuda", show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=2, show_default=True, help="Steps, after one of warm-up.")
@step_options()
@context_option()
@click.option("--record", type=FOLDER, help="Keep measurements there, and resume.")
@click.option("--history", is_flag=True, help="Keep the allocator's history as well.")
@click.option(
    "--of", metavar="TARGET", help="With --history: TARGETS is the recording of a run of this, made elsewhere."
)
@click.option("--gpu", metavar="NAME", shell_complete=completion.gpus, help="With --of: the GPU that recorded it.")
@click.option("--driver", metavar="VERSION", default="", help="With --of: its driver.")
@click.option("--torch", metavar="VERSION", help="With --of: its PyTorch; else the installed.")
@click.option("--no-compare", is_flag=True, help="Only measure.")
@click.option("--against", type=EXISTING_FOLDER, help="Recorded measurements.")
@click.option("--cap", is_flag=True, help="Run again with the estimate as a hard limit.")
@click.option("--events", is_flag=True, help="Show which allocations differ, in order.")
@click.option("--only", metavar="TEXT", multiple=True, help="Only workloads whose names have TEXT in them.")
@click.option("--timeout", **SECONDS, help="For one workload.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory one workload may take.")
@format_option("text", "json", "markdown")
@click.option("-o", "--output-file", type=FILE, help="Write the result there.")
@COLOR
def validate(
    targets: tuple[str, ...], output_format: str, output_file: Path | None, color: str, **options: Any
) -> None:
    """Run workloads for real, and hold the estimates against what the device says.

    TARGETS are as those of check. Every workload runs in a process of its own. With --record an interrupted suite
    keeps what it has, and the same command goes on from there. With --against nothing runs: today's estimates are held
    against recorded measurements, on any machine. With --history and --of a snapshot of PyTorch is the measurement.

    Exit status: 0 all is well, 1 an estimate is more than 1 % too low or did not hold as a limit, 2 something could not
    be measured or estimated.
    """
    from memlint.commands.validate import validate as command  # noqa: PLC0415

    def tell(text: str) -> None:
        show_progress("")
        click.echo(text, err=True)

    with progress() as show:
        own = {field.name: options.pop(field.name) for field in fields(command.Options)}
        result = command.validate(targets, command.Options(**own), options, on_wait=show, tell=tell)
    style = text_style_of(color, output_file, verbosity=0)
    write(result.rendered(output_format, style), output_file, color=style.color)
    for name, error in result.errors:
        print_error(f"{name}: {error.message}", error.hint)
    click.get_current_context().exit(result.status)

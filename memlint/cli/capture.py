"""`memlint capture`."""

from pathlib import Path
from typing import Any

import click

from memlint.base.errors import UsageError
from memlint.base.units import format_nbytes
from memlint.cli import completion
from memlint.cli.check import OFF
from memlint.cli.options import FILE, PACKAGES, SECONDS, workload_options
from memlint.cli.printing import progress


@click.command()
@click.argument("target", shell_complete=completion.targets)
@workload_options()
@click.option("-o", "--output-file", type=FILE, help="Write it there.  [default: TARGET.memlint]")
@click.option("--force", is_flag=True, help="Without -o: write over a file that is there.")
@click.option("--workload", metavar="NAME", help="Of a target with several: this one.")
@click.option("--no-cache", "cache", **OFF, help="Trace it anew, and keep nothing in .memlint_cache.")
@click.option("--timeout", **SECONDS, help="For the code of the target.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory it may take.")
@click.option("--stub", **PACKAGES, help="Packages to do without: a stand-in fails when the model uses it.")
def capture(
    target: str, output_file: Path | None, force: bool, workload: str | None, cache: bool, **settings: Any
) -> None:
    """Write what a step of a model did into a file, to look at it later.

    TARGET is what check takes. `memlint check`, `report` and `diff` take the file in place of a target: they need
    neither the code nor PyTorch for it. It is something to attach to an issue, or to keep from each release.

    Exit status: 0 it is written, 2 it could not be analysed or written.
    """
    from memlint.capture.codec import SUFFIX, save  # noqa: PLC0415
    from memlint.commands import capture as capturing  # noqa: PLC0415
    from memlint.commands.report import file_name  # noqa: PLC0415

    settings.pop("budget")
    file = output_file or Path(file_name([target], SUFFIX))
    if output_file is None and file.exists() and not force:
        raise UsageError(f"{file} is there already", "Write over it with --force, or name another file with -o.")
    if file.suffix != SUFFIX:
        raise UsageError(f"{file} is not called as a capture", f"End it in {SUFFIX}.")
    with progress() as show:
        captured = capturing.capture(target, settings, workload, show, cache=cache)
    nbytes = save(captured, file)
    click.echo(f"Wrote {file} ({format_nbytes(nbytes)}): {captured.workload.name}, batch {captured.workload.batch}.")

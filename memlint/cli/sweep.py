"""`memlint sweep` and `memlint fit`."""

from pathlib import Path
from typing import Any

import click

from memlint.cli import completion
from memlint.cli.options import (
    COLOR,
    FILE,
    MODES,
    SECONDS,
    cache_option,
    compile_option,
    context_option,
    format_option,
    step_options,
    torch_option,
)
from memlint.cli.printing import progress, show_result

_STRATEGY = click.option(
    "--strategy", metavar="NAMES", help="ddp, fsdp, fsdp-no-reshard, hsdp:2x4, tp:8+fsdp by comma; else ddp and fsdp."
)
_GPUS = click.option(
    "--gpu",
    metavar="NAMES",
    shell_complete=completion.gpus,
    help="One or several by comma; by default the workload's.",
)
_RANKS = click.option("--ranks", metavar="SIZES", help="Of how many GPUs: 1,8,64, or 1:512 for 1, 2, 4, ...")


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGETS...", shell_complete=completion.targets)
@click.option("--batch", default="1:512", show_default=True, metavar="SIZES", help="1,8,32, or 1:512 for 1, 2, 4, ...")
@click.option(
    "--dtype",
    metavar="NAMES",
    shell_complete=completion.dtypes,
    help="One or several by comma, or all; by default the workload's.",
)
@_GPUS
@torch_option()
@context_option()
@click.option("--seq", metavar="SIZES", help="Sequence lengths: short for --dim seq=SIZES.")
@click.option("--prompt", metavar="SIZES", help="With --mode generate: tokens of the prompt.")
@click.option("--new-tokens", metavar="SIZES", help="With --mode generate: tokens to generate after it.")
@click.option("--num-beams", metavar="SIZES", help="With --mode generate: beams.")
@cache_option()
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZES", help="Sizes of a dimension the workload declares.")
@compile_option()
@_STRATEGY
@_RANKS
@click.option("--mode", type=click.Choice(MODES), help="What a step is.")
@click.option("--optimizer", metavar="NAME", help="Name, file.py::callable, or none.")
@format_option("text", "json", "csv", "markdown")
@click.option("-o", "--output-file", type=FILE, help="Write the table there.")
@click.option(
    "--executor", type=click.Choice(("local", "ray")), default="local", show_default=True, help="Where it is done."
)
@click.option("--address", metavar="HOST:PORT", help="With --executor ray: the cluster, or auto; else one is started.")
@click.option("--timeout", **SECONDS, help="For one analysis.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory one file's code may take.")
@COLOR
def sweep(
    targets: tuple[str, ...],
    batch: str,
    dtype: str | None,
    gpu: str | None,
    seq: str | None,
    prompt: str | None,
    new_tokens: str | None,
    num_beams: str | None,
    dims: tuple[str, ...],
    strategy: str | None,
    ranks: str | None,
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
    from memlint.commands.sweep import sweep as command  # noqa: PLC0415
    from memlint.commands.sweep.tables_text import render  # noqa: PLC0415

    run = command.executor_of(executor, address)
    spread = command.spread_of(strategy, ranks)
    short = {"seq": seq, "prompt": prompt, "new_tokens": new_tokens, "num_beams": num_beams}
    sizes = (f"{name}={each}" for name, each in short.items() if each)
    order = command.order_of(batch, dtype, gpu, (*dims, *sizes), spread)
    with progress() as show:
        result = command.sweep(targets, order, options, on_wait=show, executor=run)
    show_result(result, render, output_format, output_file, color)


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGETS...", shell_complete=completion.targets)
@_GPUS
@torch_option()
@context_option()
@compile_option()
@_STRATEGY
@_RANKS
@step_options()
@format_option("text", "json", "markdown")
@click.option("-o", "--output-file", type=FILE, help="Write the result there.")
@click.option("--timeout", **SECONDS, help="For one analysis.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory one file's code may take.")
@COLOR
def fit(
    targets: tuple[str, ...],
    gpu: str | None,
    strategy: str | None,
    ranks: str | None,
    output_format: str,
    output_file: Path | None,
    color: str,
    **options: Any,
) -> None:
    """Say which batch fits into a GPU: as it is, and with changes that keep what is trained.

    TARGETS are as those of check. For each way it says the largest batch, and into how many parts the batch asked for
    has to be cut; with --ranks also on several GPUs, where it is the batch of each rank. No change of another batch
    size, of fewer trained parameters or of the weights' type is tried.

    Exit status: 0 all is there, 2 something could not be analysed, 130 interrupted.
    """
    from memlint.commands.fit import fit as fit_command  # noqa: PLC0415
    from memlint.commands.sweep.sweep import spread_of  # noqa: PLC0415
    from memlint.commands.sweep.tables_text import render_fits  # noqa: PLC0415

    spread = spread_of(strategy, ranks)
    with progress("fitting") as show:
        result = fit_command.fit(targets, gpu, spread, options, on_wait=show)
    show_result(result, render_fits, output_format, output_file, color)

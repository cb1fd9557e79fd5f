"""`memlint diff`."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from memlint.base.errors import UsageError
from memlint.cli.check import check
from memlint.cli.options import COLOR, FILE, format_option
from memlint.cli.printing import print_error, text_style_of, write

_PYTHON = click.Path(dir_okay=False)
_FOR_CHECK = "memlint.arguments-of-check"
_NOT_FOR_CHECK = (
    *("output_file", "output_format", "exit_zero", "init", "add_ignore", "write_baseline", "fix", "diff"),
)
"""Options of check that memlint diff gives itself, or that would change files."""


class _WithArgumentsOfCheck(click.Command):
    """A command that hands on what stands after `--`. Raises UsageError where `memlint check` does not take it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = args.index("--") if "--" in args else len(args)
        words = args[own + 1 :]
        context = check.make_context("memlint check", words.copy())
        for name in _NOT_FOR_CHECK:
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} cannot be given to the two runs of memlint check", "Leave it out.")
        ctx.meta[_FOR_CHECK] = (tuple(words), context.params["paths"])
        return super().parse_args(ctx, args[:own])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS OF CHECK]"]


@click.command(cls=_WithArgumentsOfCheck)
@click.argument("base")
@click.argument("head", required=False)
@click.option("--base-python", type=_PYTHON, metavar="FILE", help="Python of the environment to analyse BASE with.")
@click.option("--head-python", type=_PYTHON, metavar="FILE", help="Python of the environment to analyse HEAD with.")
@format_option("text", "json", "markdown")
@click.option("-o", "--output-file", type=FILE, help="Write the comparison there.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if a budget is exceeded.")
@COLOR
@click.option("-v", "--verbose", is_flag=True, help="Every row of what grew.")
def diff(
    base: str,
    head: str | None,
    output_format: str,
    output_file: Path | None,
    exit_zero: bool,
    color: str,
    verbose: bool,
    **pythons: Any,
) -> None:
    """Say what a change does to memory: which workloads take more, and which lines hold it.

    BASE and HEAD are each a report that `memlint check --output-format json` wrote, a directory, or a git revision;
    HEAD is the working tree if it is left out. Revisions are checked out into worktrees of their own and analysed
    there as `memlint check` does in this directory; after `--` it can be given other arguments:
    `memlint diff main -- models/gpt2.py --batch 8`. The budgets are those of HEAD.

    Exit status: 0 all budgets are kept, 1 one is exceeded, 2 something in HEAD could not be analysed.
    """
    from memlint.commands.diff import diff as command  # noqa: PLC0415
    from memlint.compare.terminal import render_text  # noqa: PLC0415

    ctx = click.get_current_context()
    sides = command.TypedSide(base, pythons["base_python"]), command.TypedSide(head, pythons["head_python"])
    comparison = command.diff(*sides, command.CheckArguments(*ctx.meta[_FOR_CHECK]))
    style = text_style_of(color, output_file, verbosity=int(verbose))
    if output_format == "json":
        text = comparison.model_dump_json(indent=2) + "\n"
    elif output_format == "markdown":
        from memlint.commands.comment.body import render_body  # noqa: PLC0415

        text = render_body(comparison)
    else:
        text = style.fitted(render_text(comparison, style))
    write(text, output_file, color=style.color and output_format == "text")
    if output_file is not None or output_format != "text":
        for change in comparison.failed:
            print_error(f"{change.name}: {change.head.error if change.head else ''}", "")
    ctx.exit(0 if comparison.status == 1 and exit_zero else comparison.status)

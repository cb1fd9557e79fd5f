"""The command `memlint`: the only place that prints or exits.

Everything beyond click is imported inside the commands, so that `memlint --help` is immediate.
"""

from __future__ import annotations

import atexit
import gc
import traceback
from pathlib import Path
from typing import Any

import click

from memlint.base.errors import MemlintError
from memlint.base.version import __version__
from memlint.cli import check, comment, diff, report, rules, run, sweep, validate
from memlint.cli.printing import print_error


class _Group(click.Group):
    """Commands whose MemlintErrors are one clear message and exit status 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MemlintError as error:
            print_error(error.message, error.hint)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception:  # an exit status of 1 would be taken for findings
            traceback.print_exc()
            print_error("memlint failed", "This is a mistake in memlint: please report it with the lines above.")
            ctx.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="memlint %(version)s")
def main() -> None:
    """Say how much GPU memory a PyTorch training step takes, and what would lower it. Needs no GPU."""
    gc.set_threshold(100_000)  # looking for cycles among what is imported takes a tenth of a short run
    atexit.register(gc.freeze)  # and the search at the end a fifth


@click.command()
def clean() -> None:
    """Remove the cache of the project around the current directory: .memlint_cache."""
    from memlint.base import cache as cachedir  # noqa: PLC0415
    from memlint.config import find_settings  # noqa: PLC0415

    removed = cachedir.clean(find_settings(Path())[1])
    click.echo(f"Removed {removed}." if removed else "There is no cache here.")


for _command in (
    check.check,
    run.run,
    validate.validate,
    sweep.sweep,
    sweep.fit,
    diff.diff,
    report.report,
    comment.comment,
    clean,
    rules.rule,
    rules.rules,
    rules.new_rule,
    rules.test,
):
    main.add_command(_command)

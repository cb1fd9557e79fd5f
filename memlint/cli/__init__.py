"""The command `memlint`: the only place that prints or exits.

Everything beyond click is imported inside the commands, so that `memlint --help` is immediate.
"""

import atexit
import errno
import gc
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from memlint.base.errors import MemlintError, UsageError
from memlint.base.garbage import collect_seldom
from memlint.base.version import __version__
from memlint.cli import capture, check, comment, diff, explain, lsp, report, rules, run, serve, sweep, validate
from memlint.cli.printing import print_error
from memlint.lint.own_rules import watch_own_rules

_OF_THE_SYSTEM = {
    errno.ENOSPC: "Free space there, or write to another place.",
    errno.EDQUOT: "Free space there, or write to another place.",
    errno.EFBIG: "Allow larger files: ulimit -f unlimited",
    errno.EIO: "See what the system says of that device.",
    errno.EMFILE: "Allow more open files: ulimit -n 1024",
    errno.ENFILE: "Close other programs.",
}
"""Errors that are nobody's mistake, and what to do."""


class _Group(click.Group):
    """Commands whose MemlintErrors are one clear message and exit status 2."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run what the command line says."""
        if not (args or extra):  # this is the command's own process
            watch_own_rules()
            collect_seldom()  # looking for cycles among what is imported takes a tenth of a short run
            atexit.register(gc.freeze)  # and the search at the end a fifth
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if error.errno not in _OF_THE_SYSTEM:
                raise
            with suppress(OSError, ValueError):  # the rest of stdout goes nowhere, or a second error follows
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            message = f"{error.filename or 'what is printed'} cannot be written: {error.strerror}"
            if error.errno in (errno.EMFILE, errno.ENFILE):
                message = f"a file cannot be opened: {error.strerror}"
            print_error(message, _OF_THE_SYSTEM[error.errno])
            sys.exit(2)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            if not _has_directory():
                raise UsageError("the working directory does not exist any more", "Change to one that does.")
            return super().invoke(ctx)
        except MemlintError as error:
            print_error(error.message, error.hint)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:  # an exit status of 1 would be taken for findings
            if isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM:
                raise
            traceback.print_exc()
            print_error("memlint failed", "This is a mistake in memlint: please report it with the lines above.")
            ctx.exit(2)


def _has_directory() -> bool:
    try:
        return bool(os.getcwd())  # noqa: PTH109
    except OSError:
        return False


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="memlint %(version)s")
def main() -> None:
    """Say how much GPU memory a PyTorch training step takes, and what would lower it. Needs no GPU."""


@click.command()
def clean() -> None:
    """Remove the cache of the project around the current directory: .memlint_cache."""
    from memlint.base import cache as cachedir  # noqa: PLC0415
    from memlint.config import find_settings  # noqa: PLC0415

    removed = cachedir.clean(find_settings(Path())[1])
    click.echo(f"Removed {removed}." if removed else "There is no cache here.")


for _command in (
    check.check,
    capture.capture,
    run.run,
    validate.validate,
    sweep.sweep,
    sweep.fit,
    serve.serve,
    diff.diff,
    report.report,
    explain.explain,
    comment.comment,
    lsp.lsp,
    clean,
    rules.rule,
    rules.rules,
    rules.new_rule,
    rules.test,
):
    main.add_command(_command)

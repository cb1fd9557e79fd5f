"""`memlint comment`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlint.base.errors import UsageError
from memlint.base.version import install_command
from memlint.cli.options import FILE, all_of
from memlint.cli.printing import print_error, write
from memlint.report.escaping import one_line

if TYPE_CHECKING:
    from memlint.commands.comment.comment import ForgeName


_OPTIONS = all_of(
    click.option(
        "--head",
        multiple=True,
        required=True,
        metavar="FILE",
        help="Report of the change: a file, or a pattern such as 'reports/*.json'. May be repeated.",
    ),
    click.option("--base", multiple=True, metavar="FILE", help="Report of what it is compared with, in the same way."),
    click.option("--tag", default="default", show_default=True, help="Keeps comments of several jobs apart."),
    click.option(
        "--comment-on",
        type=click.Choice(("always", "change", "increase", "budget")),
        default="always",
        show_default=True,
        help="When to make the first comment. One that is there is kept up to date in any case.",
    ),
    click.option(
        "--behavior",
        type=click.Choice(("update", "new", "hide-and-new", "delete-and-new")),
        default="update",
        show_default=True,
        help="What to do with comments of earlier runs. GitLab has no hide-and-new.",
    ),
    click.option("--dry-run", is_flag=True, help="Print the comment, and post nothing."),
    click.option("-o", "--output-file", type=FILE, help="Write the Markdown there as well."),
)
"""Add the options that both forges have in common."""


@click.group(no_args_is_help=True)
def comment() -> None:
    """Post what `memlint diff` says as a comment on a pull or merge request.

    There is one comment for each request and tag. It is made from reports that `memlint check --output-format json`
    wrote, and no code of the request is run. The token is read from the environment.

    Exit status: 0 it is there, or is not wanted, or the token may not write, as in runs for forks; 2 it could not be
    posted.
    """


@comment.command()
@_OPTIONS
@click.option("--repo", metavar="OWNER/NAME", help="Repository; that of the workflow otherwise.")
@click.option(
    "--pull-request", "number", type=click.IntRange(min=1), help="Number; that of the workflow's event otherwise."
)
@click.option(
    "--api-url", metavar="URL", help="Of GitHub Enterprise Server, such as https://github.example.com/api/v3."
)
def github(**options: Any) -> None:
    """Comment on a pull request of GitHub, with the token in GITHUB_TOKEN.

    In a workflow repository and pull request are known. On `workflow_run` it is the open pull request that ends with
    the commit that was analysed. The Markdown goes into the summary of the job as well.
    """
    _comment("github", **options)


@comment.command()
@_OPTIONS
@click.option("--repo", metavar="GROUP/NAME", help="Project, or its number; that of the pipeline otherwise.")
@click.option("--merge-request", "number", type=click.IntRange(min=1), help="Number; that of the pipeline otherwise.")
@click.option("--api-url", metavar="URL", help="Of a server of your own, such as https://gitlab.example.com.")
def gitlab(**options: Any) -> None:
    """Comment on a merge request of GitLab, with the token in GITLAB_TOKEN (scope `api`)."""
    _comment("gitlab", **options)


def _comment(forge: ForgeName, *, output_file: Path | None, repo: str | None, dry_run: bool, **options: Any) -> None:
    from memlint.commands.comment import comment as command  # noqa: PLC0415

    arguments = command.CommentOptions(repository=repo, dry_run=dry_run, **options)
    try:
        result = command.comment(forge, arguments, os.environ, _wait)
    except ModuleNotFoundError as error:
        raise UsageError(f"memlint comment {forge} needs {error.name}", f"Type: {install_command(forge)}") from error
    problem = result.problem
    if output_file is not None or dry_run:
        write(result.body, output_file, color=False)
    elif problem is not None:
        click.echo(_without_commands(result.body), nl=False)
    for note in result.notes:
        print_error(note, "")
    if problem is None and result.message:
        click.echo(result.message)
    elif problem is not None and result.status:
        print_error(f"the comment could not be posted: {problem.message}", problem.hint)
    elif problem is not None:
        click.echo(one_line(f"no comment: {problem.message}. {problem.hint}"), err=True)
    click.get_current_context().exit(result.status)


def _wait(seconds: float) -> None:
    click.echo(f"the forge is busy: trying again in {seconds:.0f} s", err=True)
    time.sleep(seconds)


def _without_commands(text: str) -> str:
    """`text` for a log: the runner of GitHub takes commands wherever they stand in a line."""
    from secrets import token_hex  # noqa: PLC0415

    if os.environ.get("GITHUB_ACTIONS") != "true":
        return text
    word = token_hex(16)
    return f"::stop-commands::{word}\n{text}\n::{word}::\n"

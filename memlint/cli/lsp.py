"""`memlint lsp`."""

import importlib.util

import click

from memlint.base.errors import UsageError
from memlint.base.version import install_command


@click.command()
@click.option("--stdio", is_flag=True, help="Speak on stdin and stdout, which is what it does anyway.")
def lsp(stdio: bool) -> None:  # noqa: ARG001 -- editors give it
    """Serve an editor: findings while one types, and on save the bytes beside the lines that hold them.

    It speaks the Language Server Protocol on stdin and stdout. An editor starts it; docs/editors.md says how for
    several. Code runs when a file is saved, in a child process as with check, and never because a file is opened,
    unless the setting traceOnOpen says so.
    """
    if importlib.util.find_spec("pygls") is None:
        raise UsageError("the language server needs pygls", f"Install it with: {install_command('lsp')}")
    from memlint.language_server.server import make_server  # noqa: PLC0415

    make_server().start_io()

"""`memlint explain`."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("source")
@click.option("--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True)
def explain(source: str, form: str) -> None:
    """Say why a run ran out of memory.

    SOURCE is the log of the run, or - for what comes from stdin: a message of CUDA, cuBLAS, NCCL, Triton, a DataLoader
    or the OOM killer, in the wordings of PyTorch 1.0 to 2.13.

    Exit status: 0 it is explained, 2 nothing in it is about memory.
    """
    from memlint.commands.explain import message  # noqa: PLC0415

    log = message.read_stream(sys.stdin.buffer) if source == "-" else message.read_log(Path(source))
    click.echo(message.explain_text(log, form), nl=False)

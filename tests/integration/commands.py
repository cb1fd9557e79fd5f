"""Commands of memlint run in this process, whose children are as many processes as ever."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

from click.testing import CliRunner

from memlint import cli

if TYPE_CHECKING:
    from pathlib import Path


def memlint(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The outcome of `memlint` with these arguments in `folder`."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(cli.main, arguments, catch_exceptions=False)
    return subprocess.CompletedProcess(["memlint", *arguments], done.exit_code, done.stdout, done.stderr)

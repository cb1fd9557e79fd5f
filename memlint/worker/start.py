"""The start of a child: a new Python, and the files through which it is spoken to. Imports little, to be quick."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, NamedTuple, TypeAlias

from memlint.base.exchange import Exchange
from memlint.base.own_process import signals_wait, terminations_raise, wait_for_killed
from memlint.base.temporary import exchange_folder
from memlint.worker.child import FILES, STDERR, STDOUT
from memlint.worker.dependencies import child_environment

if TYPE_CHECKING:
    from memlint.worker.processes import Child

Start: TypeAlias = "Callable[[Path, IO[bytes], IO[bytes]], Child]"
"""Starts a child that speaks through a folder, and writes what user code prints into two files."""
_BOOT = (
    "import sys; sys.dont_write_bytecode = not sys.argv[-1]; "
    "sys.path.append(sys.argv[1]); from {} import main; main(*sys.argv[2:])"
)


class Started(NamedTuple):
    """A child, and the exchange with it."""

    exchange: Exchange
    child: Child

    def kill(self) -> None:
        """End the child, which leads a session of its own, and wait for that."""
        if sys.platform != "win32":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            self.child.kill()
        wait_for_killed(self.child.wait)


@contextmanager
def started(start: Start, place: Path | None = None) -> Iterator[Started]:
    """Start a child that speaks through a new folder in `place`, and kill it at the end of the block."""
    with exchange_folder(place) as name, terminations_raise(), Exchange(Path(name), FILES, new=True) as exchange:
        running: Started | None = None
        try:
            with (
                os.fdopen(exchange.duplicate(STDOUT), "wb") as stdout,
                os.fdopen(exchange.duplicate(STDERR), "wb") as stderr,
                signals_wait(),  # for the child to be known, and so ended
            ):
                running = Started(exchange, start(exchange.folder, stdout, stderr))
            yield running
        finally:
            if running is not None:
                running.kill()


def start_python(
    module: str,
    *arguments: str,
    stdout: IO[bytes],
    stderr: IO[bytes],
    environment: Mapping[str, str | None] = MappingProxyType({}),
    pass_fds: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start the `main` of a module of memlint in a new Python that leads a session.

    Its last argument says whether compiled modules are kept. `environment` is as for `ask`.
    """
    ours, bytecode = str(Path(__file__).resolve().parents[2]), "" if sys.dont_write_bytecode else "kept"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT.format(module), ours, *arguments, bytecode],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=child_environment(environment),
        start_new_session=True,
        pass_fds=pass_fds,
    )

"""Run one request in a child process, within limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING

from memlint.worker.child import REQUEST, STACK, STDERR, STDOUT
from memlint.worker.child_exit import interrupted, read_answer, stopped
from memlint.worker.child_variables import child_environment
from memlint.worker.process_tree import Family
from memlint.worker.protocol import ANALYSE
from memlint.worker.signals import terminations_raise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memlint.worker.child_exit import Limit
    from memlint.worker.process_tree import Child
    from memlint.worker.protocol import Answer, Limits, Request

_INTERVAL = 0.1  # seconds between two looks at the family
_STACK_PATIENCE = 1.0  # seconds for the child to write where it hangs
_BOOT = "import sys; sys.path.append(sys.argv[1]); from {} import main; main(*sys.argv[2:])"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a child ran: `answer` has what it told until then."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


def ask(
    request: Request,
    limits: Limits,
    *,
    analyse: str = ANALYSE,
    environment: Mapping[str, str | None] = MappingProxyType({}),
    on_wait: Callable[[float], None] = lambda _seconds: None,
) -> Answer:
    """The answer of a child process to `request`; no process it started is left when this returns or raises.

    `analyse` names the function that the child calls; `environment` goes before the child's usual variables, and with
    None leaves one as this process has it; `on_wait` is called about ten times a second with the seconds
    gone. Raises nothing that happened in the child, and Interrupted on Ctrl-C.
    """

    def begin(exchange: Path, stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        bytecode = "" if sys.dont_write_bytecode else "kept"
        told = (str(exchange), str(os.getpid()), str(limits.nbytes), analyse, bytecode)
        return subprocess.Popen(
            command("memlint.worker.child", *told),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=child_environment(environment),
            start_new_session=True,
        )

    with tempfile.TemporaryDirectory(prefix="memlint-") as name:
        return conduct(Path(name), request, limits, begin, on_wait)


def command(module: str, *told: str) -> list[str]:
    """The command that starts the `main` of a module of memlint in a new Python, and tells it `told`."""
    ours = str(Path(__file__).resolve().parents[2])
    return [sys.executable, "-P", "-c", _BOOT.format(module), ours, *told]


def conduct(
    exchange: Path,
    request: Request,
    limits: Limits,
    begin: Callable[[Path, IO[bytes], IO[bytes]], Child],
    on_wait: Callable[[float], None] = lambda _seconds: None,
) -> Answer:
    """As `ask`, in a directory `exchange`; `begin` starts the child, which leads a session and writes to two files."""
    with terminations_raise(), Family() as family:
        (exchange / REQUEST).write_text(request.model_dump_json(), encoding="utf-8")
        (exchange / STACK).touch()
        with (exchange / STDOUT).open("wb") as stdout, (exchange / STDERR).open("wb") as stderr:
            child = begin(exchange, stdout, stderr)
        family.begin(child)
        start = time.monotonic()
        try:
            broken = _watch(child, family, exchange, limits, on_wait)
        except KeyboardInterrupt as error:
            raise Interrupted(interrupted(time.monotonic() - start, exchange)) from error
        if broken is None:
            return read_answer(exchange, child.wait(), limits)
        if broken == "seconds":
            _ask_for_stack(child, exchange)
        return stopped(broken, exchange, limits)


def _watch(
    child: Child, family: Family, exchange: Path, limits: Limits, on_wait: Callable[[float], None]
) -> Limit | None:
    """Wait for the child's end; give the limit that it broke, if it did."""
    start = time.monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            child.wait(_INTERVAL)
            return None
        seconds = time.monotonic() - start
        on_wait(seconds)
        if seconds > limits.seconds:
            return "seconds"
        processes, nbytes = family.look()
        if processes > limits.processes:
            return "processes"
        if nbytes > limits.nbytes:
            return "nbytes"
        if sum((exchange / file).stat().st_size for file in (STDOUT, STDERR)) > limits.output_nbytes:
            return "output_nbytes"


def _ask_for_stack(child: Child, exchange: Path) -> None:
    if sys.platform == "win32":
        return
    child.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + _STACK_PATIENCE
    while time.monotonic() < deadline and not (exchange / STACK).stat().st_size:
        time.sleep(0.02)

"""Run one request in a child process, within limits."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO

from memlint.base.own_process import terminations_raise
from memlint.base.temporary import exchange_folder
from memlint.script.spec import END_REASON, END_SIGNAL
from memlint.worker.child import REPLY, REQUEST, STACK, STDERR, STDOUT
from memlint.worker.child_exit import Limit, interrupted, read_answer, stop_reason, stopped
from memlint.worker.dependencies import child_environment
from memlint.worker.processes import Child, ProcessTree
from memlint.worker.protocol import ANALYSE, Answer, Limits, Request

_INTERVAL = 0.1  # seconds between two measurements of the process tree
_END_PATIENCE = 30.0  # seconds for a script to say what was seen so far
_LAST_PATIENCE = 2.0  # seconds for a child that has answered to end
_STACK_PATIENCE = 1.0  # seconds for the child to write where it hangs
_BOOT = "import sys; sys.path.append(sys.argv[1]); from {} import main; main(*sys.argv[2:])"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a child ran: `answer` has the partial result that it had written until then."""

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

    `analyse` names the function that the child calls; variables in `environment` override the child's usual ones, and
    None leaves one as this process has it; `on_wait` is called about ten times a second with the seconds gone. Raises
    nothing that happened in the child, and Interrupted on Ctrl-C.
    """

    def start(exchange: Path, stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        arguments = (str(exchange), str(os.getpid()), str(limits.nbytes), analyse)
        return start_python("memlint.worker.child", *arguments, stdout=stdout, stderr=stderr, environment=environment)

    with exchange_folder() as name:
        return supervise(Path(name), request, limits, start, on_wait)


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


def supervise(
    exchange: Path,
    request: Request,
    limits: Limits,
    start: Callable[[Path, IO[bytes], IO[bytes]], Child],
    on_wait: Callable[[float], None] = lambda _seconds: None,
) -> Answer:
    """As `ask`, in a directory `exchange`; `start` starts the child, which leads a session and writes to two files."""
    with terminations_raise(), ProcessTree() as tree:
        (exchange / REQUEST).write_text(request.model_dump_json(), encoding="utf-8")
        (exchange / STACK).touch()
        with (exchange / STDOUT).open("wb") as stdout, (exchange / STDERR).open("wb") as stderr:
            child = start(exchange, stdout, stderr)
        tree.grow_from(child)
        begin = time.monotonic()
        try:
            broken = _watch(child, tree, exchange, limits, on_wait)
        except KeyboardInterrupt as error:
            seconds = time.monotonic() - begin
            reason = f"it was stopped by an interrupt after {seconds:.1f} s"
            if request.script is not None and _answers_now(child, exchange, reason):
                raise Interrupted(read_answer(exchange, _status(child), limits)) from error
            raise Interrupted(interrupted(seconds, exchange)) from error
        if broken and request.script is not None and _answers_now(child, exchange, stop_reason(broken, limits)):
            broken = None
        if broken is None:
            return read_answer(exchange, _status(child), limits, is_script=request.script is not None)
        if broken == "seconds":
            _ask_for_stack(child, exchange)
        return stopped(broken, exchange, limits, is_script=request.script is not None)


def _watch(
    child: Child, tree: ProcessTree, exchange: Path, limits: Limits, on_wait: Callable[[float], None]
) -> Limit | None:
    """Wait for the end of the child; give the limit that it broke, if any."""
    begin = time.monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            child.wait(_INTERVAL)
            return None
        if (exchange / REPLY).exists():
            return None
        seconds = time.monotonic() - begin
        on_wait(seconds)
        if seconds > limits.seconds:
            return "seconds"
        processes, nbytes = tree.usage()
        if processes > limits.processes:
            return "processes"
        if nbytes > limits.nbytes:
            return "nbytes"
        if sum(_nbytes(exchange / file) for file in (STDOUT, STDERR)) > limits.output_nbytes:
            return "output_nbytes"


def _answers_now(child: Child, exchange: Path, reason: str) -> bool:
    """Ask a script to answer with what was seen so far, and whether it did."""
    exchange.mkdir(exist_ok=True)
    (exchange / END_REASON).write_text(reason, encoding="utf-8")
    child.send_signal(END_SIGNAL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_END_PATIENCE)
    return (exchange / REPLY).exists()


def _status(child: Child) -> int:
    """With which the child ends; once it has answered user code may hold it up no longer."""
    with suppress(subprocess.TimeoutExpired):
        return child.wait(_LAST_PATIENCE)
    child.kill()
    return child.wait()


def _ask_for_stack(child: Child, exchange: Path) -> None:
    if sys.platform == "win32":
        return
    child.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + _STACK_PATIENCE
    while time.monotonic() < deadline and not _nbytes(exchange / STACK):
        time.sleep(0.02)


def _nbytes(file: Path) -> int:
    """Its size; 0 once user code has removed it."""
    with suppress(FileNotFoundError):
        return file.stat().st_size
    return 0

"""Run one request in a child process, within limits."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import IO

from memlint.base.exchange import Exchange
from memlint.base.own_process import terminations_raise
from memlint.base.temporary import exchange_folder
from memlint.targets.script import END_SIGNAL
from memlint.worker.child import FILES, HEARD, MARKS, REASON, REPLY, REQUEST, RULES, STACK, STDERR, STDOUT
from memlint.worker.child_exit import Limit, interrupted, read_answer, rules_stopped, stop_reason, stopped
from memlint.worker.dependencies import child_environment
from memlint.worker.processes import Child, ProcessTree
from memlint.worker.protocol import ANALYSE, Answer, Limits, Request

_INTERVAL = 0.1  # seconds between two measurements of the process tree
_HEARD_PATIENCE = 5.0  # seconds for a script to take notice that it is to end
_END_PATIENCE = 30.0  # seconds to go through what was seen so far, before rules look at it
_LAST_PATIENCE = 2.0  # seconds for a child that has answered to end
_STACK_PATIENCE = 1.0  # seconds for the child to write where it hangs
_MARKS_NBYTES = 2**10
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
    folder: Path,
    request: Request,
    limits: Limits,
    start: Callable[[Path, IO[bytes], IO[bytes]], Child],
    on_wait: Callable[[float], None] = lambda _seconds: None,
) -> Answer:
    """As `ask`, in an empty `folder`; `start` starts the child, which leads a session and writes to two files."""
    is_script = request.script is not None
    with terminations_raise(), Exchange(folder, FILES, new=True) as exchange, ProcessTree() as tree:
        (folder / REQUEST).write_text(request.model_dump_json(), encoding="utf-8")
        with _writable(exchange, STDOUT) as stdout, _writable(exchange, STDERR) as stderr:
            child = start(folder, stdout, stderr)
        tree.grow_from(child)
        begin = time.monotonic()
        try:
            broken = _watch(child, tree, exchange, limits, on_wait, limits.seconds)
            if broken and is_script and not _has_marked(exchange, RULES):
                if _is_heard(child, exchange, stop_reason(broken, limits)):
                    broken = _watch(child, tree, exchange, _wider(limits, broken), lambda _seconds: None, _END_PATIENCE)
                if exchange.is_said(REPLY):
                    broken = None
        except KeyboardInterrupt as error:
            seconds = time.monotonic() - begin
            reason = f"it was stopped by an interrupt after {seconds:.1f} s"
            if is_script and _answers_now(child, exchange, reason):
                raise Interrupted(read_answer(exchange, _status(child), limits)) from error
            raise Interrupted(interrupted(seconds, exchange)) from error
        if broken is None:
            return read_answer(exchange, _status(child), limits, is_script=is_script)
        if is_script and _has_marked(exchange, RULES):
            return rules_stopped(broken, exchange, limits)
        if broken == "seconds":
            _ask_for_stack(child, exchange)
        return stopped(broken, exchange, limits, is_script=is_script)


def _writable(exchange: Exchange, name: str) -> IO[bytes]:
    return os.fdopen(exchange.duplicate(name), "wb")


def _watch(
    child: Child,
    tree: ProcessTree,
    exchange: Exchange,
    limits: Limits,
    on_wait: Callable[[float], None],
    most_seconds: float,
) -> Limit | None:
    """Wait for the end of the child; give the limit that it broke, if any.

    `most_seconds` are for the program; rules that look at a script take the time limit anew.
    """
    begin = program_begin = time.monotonic()
    has_rules = _has_marked(exchange, RULES)
    while True:
        with suppress(subprocess.TimeoutExpired):
            child.wait(_INTERVAL)
            return None
        if exchange.is_said(REPLY):
            return None
        now = time.monotonic()
        on_wait(now - program_begin)
        if not has_rules and _has_marked(exchange, RULES):
            has_rules, begin, most_seconds = True, now, limits.seconds
        if now - begin > most_seconds:
            return "seconds"
        processes, nbytes = tree.usage()
        if processes > limits.processes:
            return "processes"
        if nbytes > limits.nbytes:
            return "nbytes"
        if exchange.nbytes(STDOUT) + exchange.nbytes(STDERR) > limits.output_nbytes:
            return "output_nbytes"


def _wider(limits: Limits, broken: Limit) -> Limits:
    """Widen the limit that a script has broken which is to end: to say what was seen takes some, too."""
    return limits if broken == "seconds" else replace(limits, **{broken: 2 * getattr(limits, broken)})


def _has_marked(exchange: Exchange, mark: str) -> bool:
    return mark.encode() in exchange.beginning(MARKS, _MARKS_NBYTES).split()


def _is_heard(child: Child, exchange: Exchange, reason: str) -> bool:
    """Ask a script to answer with what was seen so far; whether it took notice, or has ended meanwhile."""
    exchange.say(REASON, reason.encode())
    child.send_signal(END_SIGNAL)
    deadline = time.monotonic() + _HEARD_PATIENCE
    while time.monotonic() < deadline:
        if _has_marked(exchange, HEARD) or exchange.is_said(REPLY):
            return True
        with suppress(subprocess.TimeoutExpired):
            child.wait(_INTERVAL)
            return True
    return False


def _answers_now(child: Child, exchange: Exchange, reason: str) -> bool:
    """Ask a script as `_is_heard` does, and wait for the answer; whether there is one."""
    if _is_heard(child, exchange, reason):
        with suppress(subprocess.TimeoutExpired):
            child.wait(_END_PATIENCE)
    return exchange.is_said(REPLY)


def _status(child: Child) -> int:
    """With which the child ends; once it has answered user code may hold it up no longer."""
    with suppress(subprocess.TimeoutExpired):
        return child.wait(_LAST_PATIENCE)
    child.kill()
    return child.wait()


def _ask_for_stack(child: Child, exchange: Exchange) -> None:
    if sys.platform == "win32":
        return
    child.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + _STACK_PATIENCE
    while time.monotonic() < deadline and not exchange.nbytes(STACK):
        time.sleep(0.02)

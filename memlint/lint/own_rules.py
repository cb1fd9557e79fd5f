"""Running a project's own rules, in the process of the command: they may neither end it nor hold it up.

On the command line that process is a copy of the one that was started, which watches it and outlives it: then no rule
is stronger than the limit, even if it computes in C, where no signal is seen, or kills its process.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from memlint.base.errors import WorkerError
from memlint.base.frames import user_lines
from memlint.base.own_process import die_with
from memlint.base.patching import patched

_PATIENCE = 3.0
"""Seconds beyond the limit for a rule that can be interrupted, which says where it was."""
_INTERVAL = 0.05


class _TimeIsUp(BaseException):
    """Goes through whatever a rule catches but a bare `except`, which meets another a second later."""


class _Watched:
    """Module state: True if this process may become two, and the pipe that tells the copy how many seconds it has."""

    is_wanted = False
    pipe: int | None = None


def watch_own_rules() -> None:
    """Let the first of a project's own rules run in a copy of this process. For commands, before they start threads."""
    _Watched.is_wanted = hasattr(os, "fork")


@contextmanager
def kept_in_bounds(seconds: float) -> Iterator[None]:
    """Let `os._exit` raise SystemExit, which is reported as a broken rule, and raise WorkerError after `seconds`.

    Without a process that watches, time is limited where the system has alarms, in the main thread. Where there is one,
    WorkerError is raised there too if a rule ends this process.
    """

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise _TimeIsUp

    if _Watched.is_wanted:
        _Watched.is_wanted = False
        _divide(seconds)
    has_alarm = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, ring) if has_alarm else None
    _tell(seconds)
    try:
        with patched([(os, "_exit", sys.exit)]):
            if has_alarm:
                signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
            yield
    except _TimeIsUp as error:
        lines = user_lines(error)
        raise _too_long(seconds, f", at {lines[-1]}" if lines else "") from error
    finally:
        if has_alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        _tell(0)


def _too_long(seconds: float, place: str) -> WorkerError:
    return WorkerError(
        f"the project's own rules took more than {seconds:g} s{place}",
        "Correct the rule, leave it out with --ignore, or allow more with --timeout SECONDS.",
    )


def _tell(seconds: float) -> None:
    """Say to the process that watches that rules have so many seconds; 0: they have ended."""
    if _Watched.pipe is not None:
        with suppress(OSError):  # a rule may have closed it
            os.write(_Watched.pipe, f"{seconds}\n".encode())


def _divide(seconds: float) -> None:
    """Return in a copy of this process. This one ends as the copy does, or raises WorkerError if rules broke bounds."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _Watched.pipe = writing
        die_with(parent)
        return
    os.close(writing)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the copy gets it too, and this process ends with it
    passed_on = {
        number: signal.signal(number, lambda number, _frame: os.kill(child, number))
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        status = _end_of(child, reading, seconds)
    finally:
        os.close(reading)
    for number, handler in {signal.SIGINT: interrupt, **passed_on}.items():
        signal.signal(number, handler)
    if status >= 0:
        os._exit(status)
    os.kill(parent, -status)


def _end_of(child: int, pipe: int, seconds: float) -> int:
    """Exit status of the copy, negative for a signal. Raises WorkerError if it ended, or did not, while rules ran."""
    limit, deadline, is_open = seconds, time.monotonic() + seconds, True
    while True:
        if is_open and select.select([pipe], [], [], _INTERVAL)[0]:
            lines = os.read(pipe, 4096)
            is_open = bool(lines)
            if lines:
                limit = float(lines.split()[-1])
                deadline = time.monotonic() + limit
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if limit and time.monotonic() > deadline + _PATIENCE:
            _kill(child)
            raise _too_long(limit, ", and could not be interrupted")
        if not is_open:
            time.sleep(_INTERVAL)
    code = os.waitstatus_to_exitcode(status)
    if limit:
        how = f"by signal {-code}" if code < 0 else f"with status {code}"
        raise WorkerError(
            f"the project's own rules ended their process {how}",
            "Correct the rule, or leave its folder out of rule-paths.",
        )
    return code


def _kill(child: int) -> None:
    """End the copy and what it has started."""
    import psutil  # noqa: PLC0415 -- only where a rule does not end

    with suppress(psutil.Error):
        for process in (*psutil.Process(child).children(recursive=True), psutil.Process(child)):
            process.kill()
    os.waitpid(child, 0)

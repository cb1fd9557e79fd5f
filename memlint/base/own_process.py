"""Settings that a process makes for itself, where the system supports them: limits, orphans, and ending signals."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

_exit, _getppid, _sleep = os._exit, os.getppid, time.sleep
"""The original functions; scripts may replace them."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

HEADROOM = 2**30
"""Bytes of private memory that are reserved but never touched, such as thread stacks and arenas."""

_PATIENCE = 10.0  # seconds for the kernel to remove a killed process

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a process to end, where the system has them."""


def limit_memory(nbytes: int) -> None:
    """Limit the private memory of this process and its children to `nbytes` plus some headroom.

    It stops an allocation far beyond the limit at once, before the parent can measure it. Core dumps are disabled too.
    RLIMIT_NPROC is not used: it counts all threads of the user, memlint's or not, and does not apply to root.
    """
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415  (not on Windows)

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return  # elsewhere RLIMIT_DATA does not limit mapped memory
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = nbytes + HEADROOM if hard == resource.RLIM_INFINITY else min(nbytes + HEADROOM, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def die_with(parent: int, *, gently: bool = False) -> None:
    """Have this process killed, or terminated if `gently`, when its parent, whose id is given, ends in any way.

    Linux only.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM if gently else signal.SIGKILL)
        if _getppid() != parent:
            _exit(1)


def die_with_adopter(parent: int) -> None:
    """Have this process killed when the one ends that adopts it once its `parent` has ended. Linux only."""
    if sys.platform == "linux":
        while _getppid() == parent:
            _sleep(0.001)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans(adopt: bool) -> bool:
    """Set whether descendants whose parent ends become children of this process; return the previous setting.

    Linux only; elsewhere init adopts them, and they are known only if they were seen before.
    """
    if sys.platform != "linux":
        return False
    import ctypes  # noqa: PLC0415

    before = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))
    return bool(before.value)


def _prctl(option: int, argument: object) -> None:
    import ctypes  # noqa: PLC0415 -- a run that starts no process does without

    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")


@contextmanager
def terminations_raise() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that no child is left running."""
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return

    def leave(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let the signals that end this process wait for the end of the block; a child started inside it blocks them."""
    if sys.platform == "win32":
        yield
        return
    came: list[int] = []
    # Blocked in this thread alone: through another one, of a library, they would still interrupt the main thread.
    is_main = threading.current_thread() is threading.main_thread()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    before = {each: signal.signal(each, lambda number, _: came.append(number)) for each in ENDING} if is_main else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in came:
            signal.raise_signal(number)


def signals_end() -> None:
    """Let the signals that end this process arrive, which the process that started it may have let wait."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def wait_for_killed(wait: Callable[[float], object]) -> None:
    """Wait for a child that was killed, but not for ever: an interrupt in `Popen.wait` may have left its lock taken."""
    with suppress(subprocess.TimeoutExpired):
        wait(_PATIENCE)


def may_fork() -> bool:
    """Return True if a copy of this process would be whole: only the thread that forks lives on in it."""
    return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208


def flush_output() -> None:
    """Write what this process has printed so far. Objects that user code put in place of the streams are left alone."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(BaseException):  # it may be closed, and a signal of the parent may come meanwhile
                stream.flush()

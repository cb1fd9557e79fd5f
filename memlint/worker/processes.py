"""Child processes: a copy of this one, and a child with every process it started, also those that left its session."""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Self, TypeVar

import psutil

from memlint.base.errors import WorkerError
from memlint.base.own_process import adopt_orphans, wait_for_killed

T = TypeVar("T")


class Fork:
    """The copy, with what is used here of `subprocess.Popen` and of `multiprocessing.Process`.

    Both do more in the copy than run a function: under Process it is no main process, and may have no children.
    """

    def __init__(self, run: Callable[[], object]) -> None:
        """Start it; it ends with status 0 when `run` returns, and with 1 when it raises."""
        self.exitcode: int | None = None
        """The status with which it ended, negative for a signal; None while nobody has asked."""
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                run()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        self._process = psutil.Process(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """The status with which it ended. Raises subprocess.TimeoutExpired after `timeout` seconds without one."""
        if self.exitcode is None:
            try:
                self.exitcode = int(self._process.wait(timeout))
            except psutil.TimeoutExpired:
                raise subprocess.TimeoutExpired("a copy of this process", timeout or 0.0) from None
        return self.exitcode

    join = wait

    def is_alive(self) -> bool:
        """Return True if it runs."""
        try:
            self.wait(0)
        except subprocess.TimeoutExpired:
            return True
        return False

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it is known to have ended."""
        if self.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it, unless it is known to have ended."""
        self.send_signal(signal.SIGKILL)


Child = subprocess.Popen[bytes] | Fork

_PATIENCE = 10.0  # seconds for the kernel to remove killed processes
_REST = 50
"""Seconds between two measurements for each second of work that one takes: it reads of every process of the system."""


class Measurement(Generic[T]):
    """A measurement that is repeated when it is worth its work."""

    def __init__(self, measure: Callable[[], T], first: T) -> None:
        self._measure, self._last, self._due = measure, first, 0.0

    def now(self) -> T:
        """Return the last result, or a new one."""
        if time.monotonic() >= self._due:
            begin = time.thread_time()
            self._last = self._measure()
            self._due = time.monotonic() + _REST * (time.thread_time() - begin)
        return self._last


class ProcessTree:
    """The descendants of this process that were not there before: as a context, it lets none of them outlive the block.

    One at a time: two in threads of one process would take each other's orphans.
    """

    def __init__(self) -> None:
        self._this = psutil.Process()
        self._others: frozenset[psutil.Process] = frozenset()
        self._known: set[psutil.Process] = set()
        self._root: Child | None = None
        self._adopted_before = False
        self._usage = Measurement(self._measured, (0, 0))
        self._shared_once = Measurement(self._proportional, 0)

    def __enter__(self) -> Self:
        self._adopted_before = adopt_orphans(True)
        self._others = frozenset(self._this.children())
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._kill()
        finally:
            adopt_orphans(self._adopted_before)

    def grow_from(self, child: Child) -> None:
        """Take `child`, which leads its own session and has started no process yet, as the root of the tree."""
        self._root = child
        self._others = frozenset(each for each in self._others if each.pid != child.pid)

    def usage(self) -> tuple[int, int]:
        """How many processes run now, and the sum of their resident bytes; pages they share count for each.

        Where measuring is much work, of a moment ago: it takes a fiftieth of one core at most.
        """
        return self._usage.now()

    def shared_once(self) -> int:
        """The sum of their bytes with each page that they share counted once, where the system knows; as above.

        Copies of a process, such as the environments of an agent, share most of it.
        """
        return self._shared_once.now()

    def _proportional(self) -> int:
        nbytes = 0
        for process in self._known:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                memory = process.memory_full_info()
                nbytes += getattr(memory, "pss", memory.rss)
        return nbytes

    def _measured(self) -> tuple[int, int]:
        count = nbytes = 0
        for process in self._processes():
            # A process whose last thread is about to end is a zombie already, and cannot be waited for yet.
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.TimeoutExpired):
                if process.status() != psutil.STATUS_ZOMBIE:
                    count += 1
                    nbytes += process.memory_info().rss
                elif process.ppid() == self._this.pid and (self._root is None or process.pid != self._root.pid):
                    process.wait(0)  # an orphan that ended: nobody else will ask for its status
        return count, nbytes

    def _processes(self) -> list[psutil.Process]:
        """Return the descendants that exist now, zombies included."""
        children = set(self._this.children(recursive=True))
        for other in self._others:
            with suppress(psutil.NoSuchProcess):
                children -= {other, *other.children(recursive=True)}
        self._known = {process for process in self._known | children if process.is_running()}
        return list(self._known)

    def _kill(self) -> None:
        if self._root is not None:
            self._processes()
            if sys.platform != "win32":
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._root.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                self._root.kill()
            wait_for_killed(self._root.wait)
        deadline = time.monotonic() + _PATIENCE
        while processes := self._processes():
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(processes, timeout=0.1)
            if time.monotonic() > deadline:
                raise WorkerError(
                    f"processes {', '.join(str(process.pid) for process in processes)} cannot be killed",
                    "They may wait for a device or a network drive. End them by hand.",
                )

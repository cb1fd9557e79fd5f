"""A process that is a copy of this one, which runs a function and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable

import psutil


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
        """Whether it runs."""
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


def may_fork() -> bool:
    """Whether a copy of this process would be whole: only the thread that forks lives on in it."""
    return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208

"""Work that is done ahead: in a copy of the child, on another core, while the child itself answers other jobs."""

import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from memlint.base.own_process import die_with, may_fork
from memlint.worker.child import is_child, watch_of_child

_exit = os._exit
"""The original function; user code may replace it."""
_Result = TypeVar("_Result")


class Ahead(Generic[_Result]):
    """One piece of work, which a copy of this process does as it is now; what it returns can be pickled.

    It has to begin before the first backward pass: PyTorch then starts threads, and a copy would do without them.
    """

    def __init__(self, work: Callable[[], _Result]) -> None:
        """Begin with it. What the copy prints is printed here once its result is asked for. Raises OSError."""
        self._work = work
        self._answer, *self._printed = (os.memfd_create(name) for name in ("answer", "stdout", "stderr"))
        parent = os.getpid()
        self._process = os.fork()
        if self._process == 0:
            status = 1
            with suppress(BaseException):
                die_with(parent)
                status = self._in_copy()
            _exit(status)

    def _in_copy(self) -> int:
        for place, file in enumerate(self._printed, 1):
            os.dup2(file, place)
        result = self._work()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        content = pickle.dumps((result, watch_of_child().reads))
        with open(self._answer, "wb", closefd=False) as answer:
            answer.write(content)
        return 0

    def result(self) -> _Result:
        """Wait for it; where the copy has failed, do the work here."""
        _, status = os.waitpid(self._process, 0)
        if status:
            return self._work()
        result: _Result
        result, reads = pickle.loads(_content(self._answer))
        watch_of_child().add(reads)
        for place, file in enumerate(self._printed, 1):
            os.write(place, _content(file))
        return result

    def stop(self) -> None:
        """End it: nobody will ask for the result."""
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def may_work_ahead() -> bool:
    """Return True in a child of which a copy would be whole, and if there is a core for it."""
    return is_child() and may_fork() and len(os.sched_getaffinity(0)) > 1


def _content(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)

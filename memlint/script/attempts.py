"""Attempts at a script with data that memlint makes up: each failure shows what the program asks of that data.

The process forks where the first piece is made up; the copy waits there. When the script fails on the form of the data,
the copy forks once more and goes on with the form that was asked for: what came before, imports above all, is not
repeated. Whoever failed stands for the next attempt, until that one ends.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from memlint.base.own_process import die_with
from memlint.script.asked_forms import learned
from memlint.script.forms import Form, forms
from memlint.script.reruns import copied
from memlint.targets.script import END_SIGNAL

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_exit, _fork, _getpid, _handle = os._exit, getattr(os, "fork", None), os.getpid, signal.signal
"""The original functions; scripts may replace them."""
_STREAMS = 1, 2
_INTERVAL = 0.05
"""Seconds between two looks whether an attempt has ended."""
_PATIENCE = 1.5


class Attempts:
    """Starts a script again from where its first piece of data was made up."""

    def __init__(self, may_begin: Callable[[], bool], apart: Callable[[], None], seconds: float) -> None:
        """`may_begin` is True in the script's own process; `apart` separates an attempt.

        All begin within `seconds` of processor, on a busy machine at the latest after half as many more by the clock.
        """
        self._may_begin, self._apart = may_begin, apart
        self._began, self._seconds, self._before = time.monotonic(), seconds, 0.0
        """When the script began, and the processor's seconds for the attempts in all and for those that ended."""
        self._copy: Connection | None = None
        self._is_begun, self._is_first = False, True

    def begin(self) -> None:
        """Keep a copy of this process, which is about to make up the first piece of data; an attempt returns here."""
        is_main = threading.current_thread() is threading.main_thread()
        if self._is_begun or _fork is None or not is_main or not self._may_begin():
            return
        self._is_begun = True
        self._copy, theirs = Pipe()
        if not copied():
            theirs.close()
            return
        self._copy.close()
        self._wait(theirs)

    def _wait(self, first: Connection) -> None:
        """Wait for an attempt that fails, and start the next one; returns in that one, and never here."""
        lengths = [_length(stream) for stream in _STREAMS]
        last, number = first, 0
        while not isinstance(asked := _asked_by(last, number), _Ended):
            asked_forms, self._before = asked
            forms.take(asked_forms)
            for stream, length in zip(_STREAMS, lengths, strict=True):
                _cut(stream, length)
            self._copy, theirs = Pipe()
            this, number = _getpid(), os.fork()
            if not number:
                die_with(this)
                for each in (theirs, last, first):
                    each.close()
                self._is_first = False
                self._apart()
                return
            self._copy.close()
            first.send(number)
            last = theirs
        with suppress(OSError):
            first.send(asked)
        _exit(0)

    def fail(self, error: BaseException) -> None:
        """Handle an exception that ends the script: does not return if another attempt takes its place."""
        if self._may_be_replaced and learned(error):
            self._give_way()

    def note_loader(self, length: int, batch: int) -> None:
        """Handle a loader of training data: does not return if its data set is made anew, with at least one batch."""
        if self._may_be_replaced and forms.extend(length, batch):
            self._give_way()

    @property
    def _may_be_replaced(self) -> bool:
        passed = time.monotonic() - self._began
        is_early = min(passed, self._spent) <= self._seconds and passed <= _PATIENCE * self._seconds
        return self._copy is not None and is_early

    @property
    def _spent(self) -> float:
        return self._before + time.process_time()

    def _give_way(self) -> None:
        """Let another attempt with what is asked now take this one's place; returns if there is none."""
        assert self._copy is not None, "there is a copy from which it begins"
        with suppress(OSError, EOFError):
            self._copy.send((forms.asked, self._spent))
            if self._is_first:
                _stand_for(self._copy)
            _exit(0)


class _Ended(NamedTuple):
    """The end of an attempt that nothing more is asked by."""

    status: int
    """Status as of `os.waitpid`."""


def _asked_by(attempt: Connection, number: int) -> tuple[dict[str, Form], float] | _Ended:
    """Wait for what an attempt asks of its data and the seconds until then, or for its end.

    `number` is its process, if a child.
    """
    asked: tuple[dict[str, Form], float] | None = None
    status = 0
    with suppress(EOFError, OSError):
        while number and not attempt.poll(_INTERVAL):
            ended, status = os.waitpid(number, os.WNOHANG)
            if ended:
                return _Ended(status)
        asked = attempt.recv()
    if number:
        with suppress(OSError):
            _, status = os.waitpid(number, 0)
    return _Ended(status) if asked is None else asked


def _stand_for(copy: Connection) -> NoReturn:
    """Pass signals on to the attempt that takes this one's place, and end as the last one does."""
    attempts: list[int] = [copy.recv()]
    status = 0

    def pass_on(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(attempts[-1], number)

    for number in {END_SIGNAL, getattr(signal, "SIGUSR1", END_SIGNAL)}:
        _handle(number, pass_on)
    with suppress(EOFError, OSError):
        while not isinstance(message := copy.recv(), _Ended):
            attempts.append(message)
        status = message.status
    if os.WIFSIGNALED(status):
        cause = os.WTERMSIG(status)
        with suppress(OSError):  # of signals that cannot be handled
            _handle(cause, signal.SIG_DFL)
        os.kill(os.getpid(), cause)
    _exit(os.waitstatus_to_exitcode(status))


def _length(stream: int) -> int | None:
    """Return the length of a file that a stream goes to; None for a stream of another kind."""
    with suppress(OSError):
        status = os.fstat(stream)
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None


def _cut(stream: int, length: int | None) -> None:
    """Take away what an attempt that failed has printed."""
    if length is not None:
        with suppress(OSError):
            os.ftruncate(stream, length)
            os.lseek(stream, length, os.SEEK_SET)

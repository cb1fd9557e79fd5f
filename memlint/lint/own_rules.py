"""Running a project's own rules, in the process of the command: they may neither end it nor hold it up."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from memlint.base.errors import WorkerError
from memlint.base.frames import user_lines
from memlint.base.patching import patched


class _TimeIsUp(BaseException):
    """Goes through whatever a rule catches but a bare `except`, which meets another a second later."""


@contextmanager
def kept_in_bounds(seconds: float) -> Iterator[None]:
    """Let `os._exit` raise SystemExit, which is reported as a broken rule, and raise WorkerError after `seconds`.

    Time is limited where the system has alarms, in the main thread.
    """

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise _TimeIsUp

    has_alarm = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, ring) if has_alarm else None
    try:
        with patched([(os, "_exit", sys.exit)]):
            if has_alarm:
                signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
            yield
    except _TimeIsUp as error:
        lines = user_lines(error)
        raise WorkerError(
            f"the project's own rules took more than {seconds:g} s" + (f", at {lines[-1]}" if lines else ""),
            "Correct the rule, leave it out with --ignore, or allow more with --timeout SECONDS.",
        ) from error
    finally:
        if has_alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

"""The child and everything it started, also what left its session or lost its parent."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import psutil

from memlint.base.errors import WorkerError
from memlint.worker.limits import adopt_orphans

if TYPE_CHECKING:
    import subprocess
    from types import TracebackType

    from memlint.worker.fork import Fork

    Child = subprocess.Popen[bytes] | Fork

_PATIENCE = 10.0  # seconds for the kernel to remove killed processes


class Family:
    """What descends from this process and was not there before: as a context, nothing of it outlives the block.

    One at a time: two in threads of one process would take each other's orphans.
    """

    def __init__(self) -> None:
        self._this = psutil.Process()
        self._others: frozenset[psutil.Process] = frozenset()
        self._seen: set[psutil.Process] = set()
        self._child: Child | None = None
        self._adopted_before = False

    def __enter__(self) -> Self:
        self._adopted_before = adopt_orphans(True)
        self._others = frozenset(self._this.children())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end()
        finally:
            adopt_orphans(self._adopted_before)

    def begin(self, child: Child) -> None:
        """Take `child`, which leads its own session, as the head of the family."""
        self._child = child

    def look(self) -> tuple[int, int]:
        """How many members run now, and the sum of their resident bytes; pages they share count for each."""
        count = nbytes = 0
        for member in self._members():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if member.status() != psutil.STATUS_ZOMBIE:
                    count += 1
                    nbytes += member.memory_info().rss
                elif member.ppid() == self._this.pid and (self._child is None or member.pid != self._child.pid):
                    member.wait(0)  # an orphan that ended: nobody else will ask for its status
        return count, nbytes

    def _members(self) -> list[psutil.Process]:
        """Those that exist now, zombies included."""
        found = set(self._this.children()) - self._others
        for member in tuple(found):
            with suppress(psutil.NoSuchProcess):
                found.update(member.children(recursive=True))
        self._seen = {member for member in self._seen | found if member.is_running()}
        return list(self._seen)

    def _end(self) -> None:
        if self._child is not None:
            self._members()
            if sys.platform != "win32":
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._child.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                self._child.kill()
            self._child.wait()
        deadline = time.monotonic() + _PATIENCE
        while members := self._members():
            for member in members:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(members, timeout=0.1)
            if time.monotonic() > deadline:
                raise WorkerError(
                    f"processes {', '.join(str(member.pid) for member in members)} cannot be killed",
                    "They may wait for a device or a network drive. End them by hand.",
                )

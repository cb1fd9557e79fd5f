"""Processes that a script starts with multiprocessing; one of them may be the process that trains.

They are copies of this process, whatever start method the script requests: a newly started Python would simulate
nothing. The first process that begins a step, or that fails with a model that it has built, is the leader, possibly the
script's own: memlint analyses it, and it sends the answer. The others wait where they would begin a step, or with
`--ranks` where they join a group as a rank that is not simulated. `torch.multiprocessing.spawn` calls its function in
this process, as one rank.
"""

from __future__ import annotations

import functools
import importlib
import json
import multiprocessing
import os
import threading
import time
from contextlib import suppress
from multiprocessing import context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import psutil
import torch
import torch.distributed as dist

from memlint.accelerator import state
from memlint.base.ownership import is_users
from memlint.base.patching import patched
from memlint.distributed.rank import Rank
from memlint.script.ending import End, ending_of, wait_for_threads
from memlint.targets.script import END_SIGNAL, Ending, Script
from memlint.workloads.notes import not_there

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlint.base.patching import Patch

_LEADER, _FAILED = "leader.txt", "failed.json"
"""Files of the exchange: the leading process, and why another one failed."""
_PATIENCE = 20.0
"""Seconds during which a process that was started earlier may become the leader, so that it is always the same one."""
_INTERVAL = 0.02
_exit, _kill, _getpid = os._exit, os.kill, os.getpid
"""The original functions; scripts may replace them."""


class Children:
    """The processes of one script."""

    def __init__(self, script: Script, exchange: Path, end: End, num_built: Callable[[], int]) -> None:
        """`num_built` gives the number of models that are built in this process."""
        self._script, self._end, self._num_built = script, end, num_built
        self._leader, self._failed = exchange / _LEADER, exchange / _FAILED
        self._main = _getpid()
        self._number = script.rank
        """The rank of this process."""
        self._started: list[int] = []
        """Process ids of the processes that were started before this one, or by it."""
        self._leads = self._is_meant = False
        self.is_at_work = False
        """True in a process that runs a function of the script."""
        self.failed: Callable[[BaseException], None] = lambda _error: None
        """Called there with what ends the function; does not return if another attempt takes its place."""

    def lead(self) -> None:
        """Return if this is the process that trains; if another one is, wait for the end of all of them."""
        if self._leads:
            return
        deadline = time.monotonic() + _PATIENCE
        while not (self._is_meant or _getpid() == self._main or os.path.lexists(self._leader)):
            if time.monotonic() > deadline or not any(map(_is_alive, self._started)):
                break
            time.sleep(_INTERVAL)
        try:
            self._leader.parent.mkdir(exist_ok=True)  # a script may have removed it
            self._leader.symlink_to(str(_getpid()))  # atomic, together with its content
        except FileExistsError:
            _wait()
        self._leads = True
        self._end.take_over()

    def take_over(self) -> None:
        """Make this process the one that the script began in: another attempt, which may lead as the one before did."""
        before, self._main = self._main, _getpid()
        with suppress(OSError):
            leader = int(self._leader.readlink().name)
            if leader == before or not _is_alive(leader):
                self._leader.unlink()

    def leave_end_to_leader(self, ending: Ending) -> None:
        """If another process leads, exit after it, because it has the answer; copies of the leader have their own."""
        if self._leads:
            return
        try:
            leader = int(str(self._leader.readlink()))
        except OSError:
            return
        if ending.is_failure and ending.goes_on:  # all of them must stop
            _kill(leader, END_SIGNAL)
        while _is_alive(leader):
            time.sleep(_INTERVAL)
        _exit(0)

    def joined(self, ending: Ending) -> Ending:
        """Wait for what Python waits for at exit; returns the ending, a failure if one of the processes failed.

        Such a one is also the cause of a failure of which nothing else is known: "a worker died".
        """
        if ending.is_failure and ending.hint:
            return ending
        if not ending.is_failure:
            wait_for_threads()
            for process in multiprocessing.active_children():
                if not process.daemon:
                    process.join()
        if self._leads or not self._failed.exists():
            return ending
        reason, lines, hint, lacked = json.loads(self._failed.read_text(encoding="utf-8"))
        not_there.extend(lacked)
        return Ending(reason, is_failure=True, traceback=tuple(lines), hint=hint)

    def patches(self) -> list[Patch]:
        """Return patches that make processes of the script's own functions copies of this one, and run ranks here."""
        spawn = importlib.import_module("torch.multiprocessing.spawn")
        ranks: list[Patch] = [
            (owner, "start_processes", self._as_one_rank) for owner in (spawn, importlib.import_module(_PACKAGE))
        ]
        if self._script.ranks is not None:
            self._number = Rank.current().number  # another number in a copy that runs only to send
            ranks += [(owner, "init_process_group", self._joining(owner)) for owner in (dist, dist.distributed_c10d)]
        if not hasattr(os, "fork"):
            return ranks
        start = BaseProcess.start

        def starting(process: Any) -> None:
            if is_users(_path_of_work(process)):
                process.run = functools.partial(self._run, process, process.run)
            start(process)
            self._started.append(process.pid)

        kinds = (context.SpawnProcess, context.ForkServerProcess)
        copying: list[Patch] = [(kind, "_Popen", staticmethod(_copying(kind._Popen))) for kind in kinds]
        return [*ranks, *copying, (BaseProcess, "start", starting)]

    def _joining(self, owner: Any) -> Callable[..., None]:
        """Wrap the function that joins a group: in a process of the script that is another rank it never returns."""
        join = owner.init_process_group

        @functools.wraps(join)
        def joining(*args: Any, **options: Any) -> None:
            join(*args, **options)
            self._is_meant = dist.get_rank() == self._number
            if not self._is_meant and _getpid() != self._main:
                _wait()

        return joining

    def _run(self, process: Any, run: Callable[[], None]) -> None:
        """Run the function of a copy."""
        if type(process)._start_method != "fork":
            BaseProcess._after_fork()  # type: ignore[attr-defined]  # others have nothing to do there
        num_built, self.is_at_work = self._num_built(), True
        try:
            run()
        except BaseException as error:
            if isinstance(error, SystemExit) and not self._leads:
                raise
            self.failed(error)
            ending = ending_of(error)
            if self._num_built() > num_built and not os.path.lexists(self._leader):
                self.lead()
            if self._leads:
                self._end(ending)
            text = json.dumps([ending.reason, ending.traceback, ending.hint, not_there])
            with suppress(FileExistsError), self._failed.open("x", encoding="utf-8") as file:  # the first is the cause
                file.write(text)
            raise SystemExit(1) from error
        if self._leads:
            self._end(Ending("the process that it started to train ran to its end"))

    def _as_one_rank(
        self, fn: Any, args: Any = (), nprocs: int = 1, join: bool = True, *_: Any, **__: Any
    ) -> _Ranks | None:
        """Replace `torch.multiprocessing.start_processes`, which `spawn` calls."""
        number = self._number % nprocs  # of those on its machine
        if nprocs > 1:
            state.assume(f"process {number} of the {nprocs} that are started runs alone")
        num_gpus = max(torch.cuda.device_count(), nprocs)
        with patched([(torch.cuda, "device_count", lambda: num_gpus)]):  # a program may check that each has its own
            fn(number, *args)
        return None if join else _Ranks()


_PACKAGE = "torch.multiprocessing"


class _Ranks:
    """A `ProcessContext` whose processes have ended."""

    processes: tuple[Any, ...] = ()

    def join(self, *_: Any, **__: Any) -> bool:
        """Return True: all processes have ended."""
        return True

    def pids(self) -> list[int]:
        """Return no process ids."""
        return []


def _path_of_work(process: Any) -> str:
    """Return the file of the function that a process runs."""
    own, target = type(process).run, getattr(process, "_target", None)
    work = target if own is BaseProcess.run else own
    while isinstance(work, functools.partial):
        work = work.func
    code = getattr(work, "__code__", None)
    return code.co_filename if code is not None else "<compiled>"


def _copying(start: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that starts a process: as a copy of this one, or through `start`."""

    def popen(process: Any) -> Any:
        from multiprocessing import popen_fork  # noqa: PLC0415 -- not on Windows

        return popen_fork.Popen(process) if "run" in vars(process) else start(process)

    return popen


def _wait() -> NoReturn:
    """Wait for the end of all processes."""
    while True:
        threading.Event().wait()


def _is_alive(number: int) -> bool:
    try:
        return bool(psutil.Process(number).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False

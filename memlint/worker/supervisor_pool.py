"""Processes that supervise one child each, side by side."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from multiprocessing import Pipe, connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self

from memlint.base.errors import WorkerError
from memlint.base.own_process import ENDING, die_with, may_fork, signals_end, signals_wait
from memlint.worker.capture_store import Store
from memlint.worker.endings import unanswered
from memlint.worker.protocol import Answer
from memlint.worker.supervise import Interrupted, answered, carry_out
from memlint.worker.task import Task

if TYPE_CHECKING:
    from memlint.worker.processes import Fork
    from memlint.worker.session import Session

INTERVAL = 0.1  # seconds between two calls of `on_wait`
PATIENCE = 15.0  # seconds for supervisors to end their processes: a little more than a ProcessTree takes at most


def ask_child(
    task: Task, on_wait: Callable[[float], None] = lambda _seconds: None, early: Session | None = None
) -> Answer:
    """The Answer of a child that is a new Python: that of `early`, if there is one."""
    if early is None:
        return carry_out(task, store=store_of(task), on_wait=on_wait)
    early.ask_about(task.request, task.limits, lambda: store_of(task), on_wait)
    return answered(task, early)


def store_of(task: Task) -> Store | None:
    """Give what is kept of earlier answers, where the task takes and leaves some."""
    return Store(task.request) if task.cache else None


def answer_of(error: KeyboardInterrupt) -> Answer:
    """Return the answer that there was at the time of the interrupt."""
    return error.answer if isinstance(error, Interrupted) else unanswered()


def start_process(task: Task, outcome: Connection) -> BaseProcess:
    """Start a supervisor of `task` whose child is a new Python."""
    kind: type[BaseProcess] = get_context("fork" if may_fork() else "spawn").Process  # type: ignore[attr-defined]
    process = kind(target=run_supervisor, args=(task, outcome, os.getpid(), ask_child), daemon=True)
    process.start()
    return process


def run_supervisor(task: Task, outcome: Connection, parent: int, ask_for: Callable[[Task], Answer]) -> None:
    """Be a supervisor, a child of `parent`: send what `ask_for` gives or raises.

    SIGINT ends its processes once: a terminal sends it to all of them, and the parent does as well.
    """
    die_with(parent, gently=True)
    for number in ENDING:
        signal.signal(number, _interrupt_once if number == signal.SIGINT else signal.SIG_DFL)
    signals_end()
    message: Answer | Exception
    try:
        message = ask_for(task)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt as error:
        message = answer_of(error)
    except Exception as error:
        message = error
    outcome.send(message)


def _interrupt_once(_number: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


class _Supervisor(NamedTuple):
    """One for each child: a ProcessTree counts all new descendants of its process."""

    number: int
    process: BaseProcess | Fork
    outcome: Connection
    start: float

    def end(self) -> Answer | Exception:
        """Wait for its end; give the Answer or exception that it sent, or an error if it sent none."""
        message: Answer | Exception | None = None
        with self.outcome, suppress(EOFError, OSError):
            message = self.outcome.recv()
        self.process.join()
        if message is not None:
            return message
        error = WorkerError(
            f"the process that watches over the code ended with status {self.process.exitcode}",
            "The system may have been out of memory: close other programs, or name one target at a time.",
        )
        return Answer(error=error)


class SupervisorPool:
    """Supervisors that run, and tasks that wait for one; as a context, no process outlives the block."""

    def __init__(
        self,
        tasks: Iterable[tuple[int, Task]],
        num: int,
        start: Callable[[Task, Connection], BaseProcess | Fork] = start_process,
    ) -> None:
        """`tasks` have numbers, at most `num` run at a time; `start` starts a process that calls `run_supervisor`."""
        self._waiting = deque(tasks)
        self._running: list[_Supervisor] = []
        self._num = num
        self._start = start

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop()

    def answers(self, on_wait: Callable[[int, float], None]) -> Iterator[tuple[int, Answer]]:
        """As `answers_to` says; `on_wait` is called with the number of the task."""
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._num:
                    self._begin(*self._waiting.popleft())
                ready = connection.wait([each.outcome for each in self._running], INTERVAL)
                for each in [each for each in self._running if each.outcome in ready]:
                    message = each.end()
                    self._running.remove(each)
                    if isinstance(message, Exception):
                        raise message
                    yield each.number, message
                if self._running:
                    on_wait(self._running[0].number, time.monotonic() - self._running[0].start)
        except KeyboardInterrupt:
            yield from self._stop()
            yield from ((number, unanswered()) for number, _task in self._waiting)
            raise

    def _begin(self, number: int, task: Task) -> None:
        """Start the next process; signals wait until it is known here, and has set up what it does with them."""
        ours, theirs = Pipe(duplex=False)
        with theirs, signals_wait():
            self._running.append(_Supervisor(number, self._start(task, theirs), ours, time.monotonic()))

    def _stop(self) -> list[tuple[int, Answer]]:
        """End all that run, and give what they answer to that."""
        stopped, self._running = self._running, []
        with ExitStack() as stack:
            for each in stopped:
                stack.callback(each.process.kill)
                if each.process.is_alive() and each.process.pid is not None:
                    os.kill(each.process.pid, signal.SIGINT)
            deadline = time.monotonic() + PATIENCE
            for each in stopped:
                if not each.outcome.poll(max(0.0, deadline - time.monotonic())):
                    each.process.kill()
            ends = [(each.number, each.end()) for each in stopped]
        return [(number, message if isinstance(message, Answer) else unanswered()) for number, message in ends]

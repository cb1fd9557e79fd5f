"""Many requests, each in a child of its own, as many at a time as cores and free memory allow."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import Pipe, connection, get_context
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import psutil

from memlint.errors import WorkerError
from memlint.worker.answer import Answer, Limits, unanswered
from memlint.worker.limits import die_with
from memlint.worker.parent import Interrupted, ask, terminations_raise
from memlint.worker.protocol import ANALYSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from memlint.worker.protocol import Request

WORKER_NBYTES = 2**30
"""Host memory for one child: PyTorch, and the Trace of a model of a few billion parameters."""
_INTERVAL = 0.1  # seconds between two calls of `on_wait`
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_PATIENCE = 15.0  # seconds for supervisors to end their families: a little more than a Family takes at most


class Task(NamedTuple):
    """What `ask` takes."""

    request: Request
    limits: Limits
    analyse: str = ANALYSE


def answers_to(
    tasks: Sequence[Task], *, on_wait: Callable[[Task, float], None] = lambda _task, _seconds: None
) -> Iterator[tuple[int, Answer]]:
    """Yield the number of each task and its Answer, as they complete.

    `on_wait` is called about ten times a second with the task that has run longest and its seconds. On Ctrl-C all
    children are stopped; then every unfinished task is answered with an error, and with what its child had told, and
    KeyboardInterrupt is raised. No process is left, whatever ends this. Raises what `ask` raises.
    """
    num = min(num_workers(), len(tasks))
    if num <= 1:
        yield from _one_by_one(tasks, on_wait)
    else:
        with terminations_raise(), _Supervisors(tasks, num) as supervisors:
            yield from supervisors.answers(on_wait)


def num_workers() -> int:
    """How many children may run at a time here."""
    if sys.platform == "win32":
        return 1  # there is no signal that lets a supervisor end its family
    num_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(num_cpus, psutil.virtual_memory().available // WORKER_NBYTES))


def _one_by_one(tasks: Sequence[Task], on_wait: Callable[[Task, float], None]) -> Iterator[tuple[int, Answer]]:
    for number, task in enumerate(tasks):
        try:
            answer = _ask(task, lambda seconds, task=task: on_wait(task, seconds))  # type: ignore[misc]
        except KeyboardInterrupt as error:
            yield number, _answer_of(error)
            yield from ((later, unanswered()) for later in range(number + 1, len(tasks)))
            raise
        yield number, answer


def _ask(task: Task, on_wait: Callable[[float], None] = lambda _seconds: None) -> Answer:
    return ask(task.request, task.limits, analyse=task.analyse, on_wait=on_wait)


def _answer_of(error: KeyboardInterrupt) -> Answer:
    return error.answer if isinstance(error, Interrupted) else unanswered()


class _Supervisor(NamedTuple):
    """A process that asks one child: a Family takes all new children of its process for its own."""

    number: int
    task: Task
    process: BaseProcess
    outcome: Connection
    start: float

    def end(self) -> Answer | Exception:
        """Wait for its end; give the Answer that it sent, or what was raised instead."""
        sent: Answer | Exception | None = None
        with self.outcome, suppress(EOFError, OSError):
            sent = self.outcome.recv()
        self.process.join()
        if sent is not None:
            return sent
        error = WorkerError(
            f"the process that watches over the code ended with status {self.process.exitcode}",
            "The system may have been out of memory: close other programs, or name one target at a time.",
        )
        return Answer(None, error, (), "", "")


class _Supervisors:
    """Those that run, and the tasks for the next ones; as a context, no process outlives the block."""

    def __init__(self, tasks: Sequence[Task], num: int) -> None:
        self._waiting = deque(enumerate(tasks))
        self._running: list[_Supervisor] = []
        self._num = num

    def __enter__(self) -> _Supervisors:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop()

    def answers(self, on_wait: Callable[[Task, float], None]) -> Iterator[tuple[int, Answer]]:
        """As `answers_to` says."""
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._num:
                    self._begin(*self._waiting.popleft())
                ready = connection.wait([each.outcome for each in self._running], _INTERVAL)
                for each in [each for each in self._running if each.outcome in ready]:
                    sent = each.end()
                    self._running.remove(each)
                    if isinstance(sent, Exception):
                        raise sent
                    yield each.number, sent
                if self._running:
                    on_wait(self._running[0].task, time.monotonic() - self._running[0].start)
        except KeyboardInterrupt:
            yield from self._stop()
            yield from ((number, unanswered()) for number, _task in self._waiting)
            raise

    def _begin(self, number: int, task: Task) -> None:
        """Start the next process; signals wait until it is known here, and has set up what it does with them."""
        kind: type[BaseProcess] = get_context("fork").Process if _may_fork() else get_context("spawn").Process
        ours, theirs = Pipe(duplex=False)
        with theirs, _signals_wait():
            process = kind(target=_supervise, args=(task, theirs, os.getpid()), daemon=True)
            process.start()
            self._running.append(_Supervisor(number, task, process, ours, time.monotonic()))

    def _stop(self) -> list[tuple[int, Answer]]:
        """End all that run, and give what they answer to that."""
        stopped, self._running = self._running, []
        with ExitStack() as stack:
            for each in stopped:
                stack.callback(each.process.kill)
                if each.process.is_alive() and each.process.pid is not None:
                    os.kill(each.process.pid, signal.SIGINT)
            deadline = time.monotonic() + _PATIENCE
            for each in stopped:
                if not each.outcome.poll(max(0.0, deadline - time.monotonic())):
                    each.process.kill()
            ends = [(each.number, each.end()) for each in stopped]
        return [(number, sent if isinstance(sent, Answer) else unanswered()) for number, sent in ends]


def _supervise(task: Task, outcome: Connection, parent: int) -> None:
    """Be a supervisor. SIGINT ends the family once: a terminal sends it to all, and the parent as well."""
    die_with(parent, gently=True)
    for number in _SIGNALS:
        signal.signal(number, _interrupt_once if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    sent: Answer | Exception
    try:
        sent = _ask(task)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt as error:
        sent = _answer_of(error)
    except Exception as error:
        sent = error
    outcome.send(sent)


def _interrupt_once(_number: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Hold back what ends this process, and the process that is started meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _may_fork() -> bool:
    """Whether a copy of this process would be whole: only the thread that forks lives on in it."""
    return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208

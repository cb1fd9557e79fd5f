"""Many requests, each in a child of its own, as many at a time as cores and free memory allow."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.base.errors import WorkerError
from memlint.base.own_process import terminations_raise
from memlint.worker.endings import unanswered
from memlint.worker.protocol import Answer
from memlint.worker.session import Session
from memlint.worker.supervisor_pool import SupervisorPool, answer_of, ask_child, store_of
from memlint.worker.task import CHILD, Task

if TYPE_CHECKING:
    from memlint.worker.server_client import HeldServer

WORKER_NBYTES = 2**30
"""Host memory for one child: PyTorch, and the Trace of a model of a few billion parameters."""


class _Held:
    """Module state: the server that is kept from call to call."""

    server: HeldServer | None = None


@contextmanager
def server_held() -> Iterator[None]:
    """Keep one process that has imported PyTorch for all answers inside the block, also where there is one task alone.

    It starts at once. On a system other than Linux every child is a new Python, and nothing is kept.
    """
    if sys.platform != "linux":
        yield
        return
    from memlint.worker.server_client import HeldServer  # noqa: PLC0415 -- most commands keep none

    with HeldServer((CHILD,)) as held:
        held.server()
        _Held.server = held
        try:
            yield
        finally:
            _Held.server = None


def is_server_held() -> bool:
    """True inside `server_held`: every task is then sent to the process that is kept, pickled."""
    return _Held.server is not None


def answers_to(
    tasks: Sequence[Task],
    *,
    on_wait: Callable[[Task, float], None] = lambda _task, _seconds: None,
    early: Session | None = None,
) -> Iterator[tuple[int, Answer]]:
    """Yield the number of each task and its Answer, as they complete; an only one is asked of `early`, if it is there.

    `on_wait` is called about ten times a second with the task that has run longest and its seconds. On Ctrl-C all
    children are stopped; then every unfinished task is answered with an error and the partial result of its child, and
    KeyboardInterrupt is raised. No process is left, whatever ends this. Raises what `ask` raises, and WorkerError on a
    system where the processes of a child cannot be seen.
    """
    if sys.platform == "linux" and not Path("/proc/self/stat").exists():
        raise WorkerError(
            "the processes that a model starts cannot be watched: there is no /proc",
            "Mount it, as with: mount -t proc proc /proc. Without running models: memlint check --no-exec.",
        )
    held = _Held.server
    left = dict(enumerate(tasks))
    is_shared = len(left) > 1 or held is not None
    known = {number: task for number, task in left.items() if is_shared and _is_known(task)}
    for number in known:
        del left[number]
    try:
        yield from _one_by_one(known, on_wait)
    except KeyboardInterrupt:
        yield from ((number, unanswered()) for number in left)
        raise
    if (len(left) > 1 or (left and held is not None)) and sys.platform == "linux":
        from memlint.worker import server_client  # noqa: PLC0415 -- a look at what is known does without

        numbers = list(left)
        served = [tasks[number] for number in numbers]
        for place, answer in server_client.answers(served, min(num_workers(), len(left)), on_wait, held):
            del left[numbers[place]]
            yield numbers[place], answer
    num = min(num_workers(), len(left)) if len(left) > 1 else 1
    if num <= 1:
        yield from _one_by_one(left, on_wait, early if len(tasks) == 1 else None)
    else:
        with terminations_raise(), SupervisorPool(left.items(), num) as supervisors:
            yield from supervisors.answers(lambda number, seconds: on_wait(tasks[number], seconds))


def _is_known(task: Task) -> bool:
    """Say whether it can be answered without a child, as far as that is known."""
    store = store_of(task)
    return store is not None and store.is_valid


def num_workers() -> int:
    """How many children may run at a time here."""
    if sys.platform == "win32":
        return 1  # there is no signal that lets a supervisor end its family
    import psutil  # noqa: PLC0415

    num_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(num_cpus, psutil.virtual_memory().available // WORKER_NBYTES))


def _one_by_one(
    tasks: Mapping[int, Task], on_wait: Callable[[Task, float], None], early: Session | None = None
) -> Iterator[tuple[int, Answer]]:
    waiting = dict(tasks)
    for number, task in tasks.items():
        del waiting[number]
        try:
            answer = ask_child(task, lambda seconds, task=task: on_wait(task, seconds), early)  # type: ignore[misc]
        except KeyboardInterrupt as error:
            yield number, answer_of(error)
            yield from ((later, unanswered()) for later in waiting)
            raise
        yield number, answer

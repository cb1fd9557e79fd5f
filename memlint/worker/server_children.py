"""The loop of a server: for each task it starts a supervisor, whose child is one more copy of the server."""

import importlib
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

from memlint.base.own_process import may_fork
from memlint.worker.dependencies import Watch
from memlint.worker.processes import Fork
from memlint.worker.protocol import Answer
from memlint.worker.session import Session
from memlint.worker.supervise import answered
from memlint.worker.supervisor_pool import SupervisorPool, run_supervisor, store_of
from memlint.worker.task import Task

STOP = "stop"
"""The order to end what runs, which is answered with the same word; None is the order to end altogether."""
_STANDARD = frozenset((0, 1, 2))


class Snapshot(NamedTuple):
    """The server as it was after its imports: what a child that is a new Python finds before it reads its request."""

    place: Path
    """The folder of the files of the server and of all exchanges."""
    watch: Watch
    modules: frozenset[str]
    descriptors: frozenset[int]
    stdout: bytes
    """The output of the imports to stdout."""
    stderr: bytes
    bytecode: bool


def serve(handle: int, snapshot: Snapshot) -> NoReturn:
    """Send on `handle` that all is ready, receive tasks, and send Answers and, now and then, which task is running.

    After the last Answer it waits for more tasks, until it is ordered to end or nobody is there.
    """
    try:
        if may_fork():
            _serve(Connection(handle), snapshot)
    finally:
        os._exit(0)


def _serve(orders: Connection, snapshot: Snapshot) -> None:
    def report(number: int, seconds: float) -> None:
        if orders.poll():  # the only orders are to stop, for good or until the next tasks
            raise KeyboardInterrupt
        orders.send((number, seconds))

    orders.send("ready")
    while (order := orders.recv()) is not None:
        if order == STOP:  # whatever ran has ended by now
            orders.send(STOP)
            continue
        tasks, num = order
        try:
            with SupervisorPool(enumerate(tasks), num, partial(_start, snapshot=snapshot)) as supervisors:
                for each in supervisors.answers(report):
                    orders.send(each)
        except KeyboardInterrupt:  # the order is read next
            continue
        except Exception as error:
            orders.send(error)


def _start(task: Task, outcome: Connection, snapshot: Snapshot) -> Fork:
    """Start a supervisor."""
    parent = os.getpid()

    def run() -> None:
        _close_others(snapshot.descriptors | {outcome.fileno()})
        run_supervisor(task, outcome, parent, partial(_ask, snapshot=snapshot))

    return Fork(run)


def _ask(task: Task, snapshot: Snapshot) -> Answer:
    """The Answer of a copy of this process."""

    def start(exchange: Path, stdout: IO[bytes], stderr: IO[bytes]) -> Fork:
        for file, text in ((stdout, snapshot.stdout), (stderr, snapshot.stderr)):
            file.write(text)
            file.flush()
        parent = os.getpid()
        return Fork(lambda: _become_child(exchange, parent, stdout, stderr, task, snapshot))

    # With a place given, nobody asks for that of temporary files, which the child may do and is to be seen doing.
    with Session(task.request, task.limits, start, place=snapshot.place, store=store_of(task)) as session:
        return answered(task, session)


def _become_child(
    exchange: Path, parent: int, stdout: IO[bytes], stderr: IO[bytes], task: Task, snapshot: Snapshot
) -> NoReturn:
    """Restore what `memlint.session.main.main` finds in a new Python, and go on as it does."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.dup2(stdout.fileno(), 1)
    os.dup2(stderr.fileno(), 2)
    _close_others(snapshot.descriptors)
    for name in sys.modules.keys() - snapshot.modules:
        _forget(name)
    child = importlib.import_module(task.child)
    child.begin(exchange, parent, task.limits.nbytes, snapshot.watch, bytecode=snapshot.bytecode, ready=_renew)
    raise AssertionError("a child ends by itself")


def _forget(name: str) -> None:
    """Take out a module as if it had not been imported, also where its package has it."""
    module = sys.modules.pop(name)
    package, _, own = name.rpartition(".")
    if package in sys.modules and getattr(sys.modules[package], own, None) is module:
        delattr(sys.modules[package], own)


def _renew() -> None:
    """Draw the seeds that a new process draws."""
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
    if random := sys.modules.get("numpy.random"):
        random.seed()


def _close_others(descriptors: frozenset[int]) -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) not in descriptors | _STANDARD:
            with suppress(OSError):
                os.close(int(name))

"""What a server does: for each task it starts a supervisor, whose child is one more copy of the server."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, NoReturn

from memlint.worker import child
from memlint.worker.fork import Fork, may_fork
from memlint.worker.supervise import conduct
from memlint.worker.supervisor_pool import Supervisors, supervise

if TYPE_CHECKING:
    from memlint.worker.protocol import Answer, Task
    from memlint.worker.server import Original

_STANDARD = frozenset((0, 1, 2))


def serve(handle: int, original: Original) -> NoReturn:
    """Say on `handle` that all is ready, take up tasks, and tell each Answer and, now and then, who is waited for."""
    try:
        if may_fork():
            _serve(Connection(handle), original)
    finally:
        os._exit(0)


def _serve(orders: Connection, original: Original) -> None:
    def tell(number: int, seconds: float) -> None:
        if orders.poll():  # the only other order is to stop
            raise KeyboardInterrupt
        orders.send((number, seconds))

    orders.send("ready")
    order = orders.recv()
    if order is None:
        return
    tasks, num = order
    try:
        with Supervisors(enumerate(tasks), num, partial(_start, original=original)) as supervisors:
            for each in supervisors.answers(tell):
                orders.send(each)
    except Exception as error:
        orders.send(error)


def _start(task: Task, outcome: Connection, original: Original) -> Fork:
    """Start a supervisor."""
    parent = os.getpid()

    def run() -> None:
        _close(original.descriptors | {outcome.fileno()})
        supervise(task, outcome, parent, partial(_ask, original=original))

    return Fork(run)


def _ask(task: Task, original: Original) -> Answer:
    """The Answer of a copy of this process."""

    def begin(exchange: Path, stdout: IO[bytes], stderr: IO[bytes]) -> Fork:
        for file, text in ((stdout, original.output), (stderr, original.errors)):
            file.write(text)
            file.flush()
        parent = os.getpid()
        return Fork(lambda: _live(exchange, parent, stdout, stderr, task, original))

    # With a place given, nobody asks for that of temporary files, which the child may do and is to be seen doing.
    with TemporaryDirectory(dir=original.place) as name:
        return conduct(Path(name), task.request, task.limits, begin)


def _live(
    exchange: Path, parent: int, stdout: IO[bytes], stderr: IO[bytes], task: Task, original: Original
) -> NoReturn:
    """Become what `memlint.worker.child.main` finds in a Python of its own, and go on as it does."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.dup2(stdout.fileno(), 1)
    os.dup2(stderr.fileno(), 2)
    _close(original.descriptors)
    for name in sys.modules.keys() - original.modules:
        del sys.modules[name]
    child.live(
        exchange, parent, task.limits.nbytes, task.analyse, original.watch, bytecode=original.bytecode, ready=_renew
    )


def _renew() -> None:
    """Draw the seeds that a new process draws, and do what the server has left out of its imports."""
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
    if random := sys.modules.get("numpy.random"):
        random.seed()
    if accumulation := sys.modules.get("memlint.accelerator.accumulation"):
        accumulation.measure()


def _close(kept: frozenset[int]) -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) not in kept | _STANDARD:
            with suppress(OSError):
                os.close(int(name))

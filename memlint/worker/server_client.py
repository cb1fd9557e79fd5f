"""Answers of children that are copies of a server: a process that has imported PyTorch once, for all of them.

It is not `multiprocessing`'s forkserver, which was tried with the same imports preloaded and is no faster: that imports
the main module again in every child, writes to this process' stdout what imports write, stays when the work is done,
and has the environment of this process, where a child's is its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Self

from memlint.base.own_process import signals_wait, terminations_raise
from memlint.base.temporary import exchange_folder
from memlint.worker.child import STDERR, STDOUT
from memlint.worker.endings import unanswered
from memlint.worker.processes import ProcessTree
from memlint.worker.protocol import Answer
from memlint.worker.server_children import STOP
from memlint.worker.start import start_python
from memlint.worker.supervisor_pool import INTERVAL, PATIENCE
from memlint.worker.task import Task

IMPORT_SECONDS = 60.0
"""How long a server may take for its imports."""


class HeldServer:
    """A server that is kept for one call of `answers` after the other; as a context, no process outlives the block.

    It starts when it is first needed, and anew where it has ended.
    """

    def __init__(self, children: Sequence[str]) -> None:
        """`children` are the modules of the children that it imports."""
        self._children = children
        self._stack = ExitStack()
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def server(self) -> _Server:
        """Give the server, which may still be busy with its imports."""
        if self._server is None:
            with ExitStack() as stack:
                name = stack.enter_context(exchange_folder())
                stack.enter_context(terminations_raise())
                tree = stack.enter_context(ProcessTree())
                self._server = stack.enter_context(_Server(Path(name), self._children))
                tree.grow_from(self._server.process)
                self._stack = stack.pop_all()
        return self._server

    def end(self) -> None:
        """End the server, if there is one."""
        self._server = None
        self._stack.close()


def answers(
    tasks: Sequence[Task], num: int, on_wait: Callable[[Task, float], None], held: HeldServer | None = None
) -> Iterator[tuple[int, Answer]]:
    """As `answers_to` says, for at most `num` at a time; tasks that the server cannot answer (any more) are left out.

    Linux only. Without a `held` server there is one for this call. Like `ask`, it then ends every process that is
    started below this one meanwhile.
    """
    missing = set(range(len(tasks)))
    own = HeldServer(sorted({task.child for task in tasks})) if held is None else None
    kept = held or own
    assert kept is not None
    server = kept.server()
    is_done = False
    try:
        import_seconds = server.wait_for_imports(lambda seconds: on_wait(tasks[0], seconds))
        server.send((tasks, num))
        while missing:
            message = server.receive(INTERVAL)
            if isinstance(message, Exception):
                raise message
            if message is None:
                continue
            number, content = message
            if isinstance(content, Answer):
                missing.remove(number)
                yield number, content
            else:
                on_wait(tasks[number], content + (import_seconds if number < num else 0.0))
        is_done = own is None
    except _GoneError:
        pass
    except KeyboardInterrupt:
        partial = dict(server.interrupt())
        if own is not None:
            own.end()
        is_done = True
        yield from ((number, partial.get(number) or unanswered()) for number in sorted(missing))
        raise
    finally:
        if not is_done:  # it is gone, or nobody waits for the rest, or it was for this call
            kept.end()


class _GoneError(Exception):
    """There is no server, or none any more."""


class _Server:
    """The process and the connection to it; as a context, it has ended its children after the block."""

    def __init__(self, place: Path, children: Sequence[str]) -> None:
        """Start it, to import the modules `children`; all its files are in `place`."""
        self._ready = False
        self._connection, theirs = Pipe()
        with theirs, (place / STDOUT).open("w+b") as stdout, (place / STDERR).open("w+b") as stderr:
            handle = theirs.fileno()
            arguments = (str(place), str(handle), str(os.getpid()), *children)
            self.process = start_python(
                "memlint.worker.server", *arguments, stdout=stdout, stderr=stderr, pass_fds=(handle,)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        with self._connection:
            self.stop()

    def wait_for_imports(self, on_wait: Callable[[float], None]) -> float:
        """The seconds they took. Raises _GoneError where they fail or take too long."""
        if self._ready:
            return 0.0
        start = time.monotonic()
        while self.receive(INTERVAL) is None:
            seconds = time.monotonic() - start
            if seconds > IMPORT_SECONDS:
                raise _GoneError
            on_wait(seconds)
        self._ready = True
        return time.monotonic() - start

    def send(self, message: object) -> None:
        """Send a message; whether the server is gone shows when its answer is waited for."""
        with suppress(OSError), signals_wait():
            self._connection.send(message)

    def receive(self, seconds: float) -> Any:
        """Its next message, None if there is none within `seconds`. Raises _GoneError."""
        if not self._connection.poll(seconds):
            return None
        try:
            with signals_wait():  # half a message would be lost
                return self._connection.recv()
        except (EOFError, OSError):
            raise _GoneError from None

    def interrupt(self) -> Iterator[tuple[int, Answer]]:
        """Let it end its children, and give what they answer to that."""
        if self._ready:
            self.send(STOP)
            yield from self._last_answers()

    def stop(self) -> None:
        """Let it end its children and itself."""
        if not self._ready:
            self.process.kill()
        self.send(None)
        for _answer in self._last_answers():
            pass
        self.process.kill()
        self.process.wait()

    def _last_answers(self) -> Iterator[tuple[int, Answer]]:
        """Answers that come before it says that it has stopped, or is gone."""
        deadline = time.monotonic() + PATIENCE + 1
        with suppress(_GoneError):
            while (seconds := deadline - time.monotonic()) > 0:
                message = self.receive(seconds)
                if message == STOP:
                    return
                if isinstance(message, tuple) and isinstance(message[1], Answer):
                    yield message

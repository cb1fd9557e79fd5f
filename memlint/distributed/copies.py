"""Ranks of a script that wait for each other: each other rank is a fork of this process, run as far as it is needed.

The process forks once, before the script begins, and that copy waits. When the simulated rank needs an object from
another rank, the copy forks again: its fork continues as the other rank, and stops whenever it has sent something or
waits itself. Objects travel between them; tensors do not, so their values are not known.
"""

import os
import sys
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn

from memlint.base.errors import MemlintError, RankNeededError
from memlint.cuda.simulated import simulated
from memlint.distributed.mailbox import Key, Letters, Mailbox
from memlint.distributed.rank import Rank

_exit, _fork = os._exit, getattr(os, "fork", lambda: 0)
"""The original functions; scripts may replace them."""


class Turn(NamedTuple):
    """Rank of a process, and the mailbox for its objects."""

    rank: Rank
    box: Mailbox
    is_copy: bool = False
    """True if it runs only to send objects: nobody reads its memory."""


def take_turns(rank: Rank) -> Turn:
    """Return the turn of `rank`, and in forks of this process, which start when needed, those of other ranks."""
    has_other_threads = len(sys._current_frames()) > 1  # a fork would lack these threads and keep their locks
    if not hasattr(os, "fork") or rank.world_size == 1 or has_other_threads:
        return Turn(rank, Mailbox(Uncopied()))
    ours, theirs = Pipe()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a script may have closed or replaced it
            stream.flush()
    if process := _fork():
        theirs.close()
        simulated().exits.callback(_dismiss, ours, process)
        return Turn(rank, Mailbox(_Copies(ours)))
    ours.close()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    other = _Turns(rank.number, theirs).serve()
    simulated().exits.push(other.over)
    return Turn(Rank(rank.world_size, other.number), Mailbox(other), is_copy=True)


def _dismiss(copies: Connection, process: int) -> None:
    """End the copies."""
    with suppress(OSError):
        copies.close()
    with suppress(ChildProcessError):  # a script may wait for its children itself
        os.waitpid(process, 0)


class Uncopied:
    """Ranks that do not run, on systems without fork."""

    def sent(self, key: Key, objects: list[Any]) -> None:
        """Drop the letter: nobody receives it."""

    def needed(self, key: Key) -> list[Any]:
        """Raise MemlintError: there is no letter."""
        error = RankNeededError(key)
        raise MemlintError(error.message, error.hint)


class _Copies:
    """The copies, as the simulated rank uses them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sent: Letters = {}

    def sent(self, key: Key, objects: list[Any]) -> None:
        """Keep a letter for its receiver, who may ask for it."""
        self._sent[key] = objects

    def needed(self, key: Key) -> list[Any]:
        """Let the sender run until it has sent this letter, and return it. Raises MemlintError if it never does."""
        self._connection.send((self._sent, key))
        self._sent = {}
        answer: list[Any] | tuple[str, str] = self._connection.recv()
        if isinstance(answer, tuple):
            raise MemlintError(*answer)
        return answer


class _ContinueAs(BaseException):
    """Control flow: ends the wait in a copy, which is another rank from now on.

    Its Mailbox exchanges letters through it.
    """

    def __init__(self, number: int, connection: Connection) -> None:
        self.number, self._connection = number, connection

    def sent(self, key: Key, objects: list[Any]) -> None:
        """Deliver a letter, and wait until more is needed."""
        self._say("sent", key, objects)

    def needed(self, key: Key) -> list[Any]:
        """Wait for the letter and return it."""
        objects: list[Any] = self._say("needs", key)
        return objects

    def over(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """End the copy when its simulation ends."""
        self._say("over", None, f"{type(error).__name__}: {error}" if error else "")
        _exit(0)

    def _say(self, *event: Any) -> Any:
        try:
            self._connection.send(event)
            return self._connection.recv()
        except (EOFError, OSError):
            _exit(0)


class _Turns:
    """Runs other ranks, each until it has sent the needed letter."""

    def __init__(self, rank: int, asking: Connection) -> None:
        """`asking` is the connection to `rank`, the simulated one."""
        self._rank, self._asking = rank, asking
        self._letters: Letters = {}
        self._others: dict[int, tuple[Connection, int]] = {}

    def serve(self) -> _ContinueAs:
        """Serve requests until the connection closes, then end the process; in each copy return its new rank."""
        try:
            self._answer()
        except _ContinueAs as other:
            return other
        except BaseException:  # the simulated rank has ended
            for connection, _process in self._others.values():
                connection.close()
        _exit(0)
        raise AssertionError("the process has ended")

    def _answer(self) -> NoReturn:
        while True:
            letters, key = self._asking.recv()
            self._letters |= letters
            try:
                self._asking.send(self._letter(key, (self._rank,)))
            except MemlintError as error:
                self._asking.send((error.message, error.hint))

    def _letter(self, key: Key, waiting: tuple[int, ...]) -> list[Any]:
        """Return the letter for the last rank of `waiting`; each rank before it waits for a letter of the next."""
        sender = key[0]
        if key not in self._letters and sender in waiting:
            raise MemlintError(
                f"rank {waiting[-1]} waits for an object of rank {sender}, which waits for it as well",
                "With every other rank alike, nobody sends first: see docs/distributed.md.",
            )
        reply: list[Any] | None = None
        while key not in self._letters:
            event, subject, value = self._run_on(sender, reply)
            reply = None
            if event == "sent":
                self._letters[subject] = value
            elif event == "needs":
                reply = self._letter(subject, (*waiting, sender))
            else:
                ended = f"does not send: it ended with {value}" if value else "never sends"
                raise MemlintError(
                    f"rank {waiting[-1]} waits for an object that rank {sender} {ended}",
                    f"Simulate that one: --rank {sender}.",
                )
        return self._letters[key]

    def _run_on(self, number: int, reply: list[Any] | None) -> tuple[str, Any, Any]:
        """Let another rank continue, with the letter it waits for, if any, until it sends or waits again."""
        connection, _process = self._others.get(number) or self._copied(number)
        try:
            connection.send(reply)
            event: tuple[str, Any, Any] = (*connection.recv(), None)[:3]
        except (EOFError, OSError):
            return "over", None, None
        return event

    def _copied(self, number: int) -> tuple[Connection, int]:
        ours, theirs = Pipe()
        if process := _fork():
            theirs.close()
            self._others[number] = ours, process
            return self._others[number]
        for connection in (ours, self._asking, *(each for each, _process in self._others.values())):
            connection.close()
        with suppress(EOFError):
            theirs.recv()
            raise _ContinueAs(number, theirs)
        _exit(0)
        raise AssertionError("the process has ended")

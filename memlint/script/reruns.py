"""Copies of a script from before its first step, which continue with Changes.

The process forks where the first training call begins: model, data and optimizer exist, and no part of a step has
happened. The copy waits there, and forks again for every requested combination of Changes.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn, Protocol

from torch import nn

from memlint.base.own_process import die_with, die_with_adopter
from memlint.memory.records import Trace

_exit, _fork, _getpid = os._exit, getattr(os, "fork", None), os.getpid
"""The original functions; scripts may replace them."""
_PATIENCE = 30.0  # seconds for a copy, and
_PATIENCE_PER_SECOND = 4.0  # as many for each second in which the script itself got as far


class Change(Protocol):
    """A change to make in a copy; it has to be picklable."""

    def after_setup(self, _program: Any) -> None:
        """Change a ScriptProgram; may raise any exception if it does not apply."""


class ScriptProgram:
    """The script as a Change sees it: its models by the names of their variables, and its only optimizer."""

    def __init__(self, models: dict[str, nn.Module], optimizers: list[Any]) -> None:
        self.model = nn.ModuleDict(models)
        self.roots = tuple(models.values())
        self.take_steps: Callable[[int], None] = lambda _num: None
        """Makes the script end after as many steps."""
        self.rest = ExitStack()
        """Contexts in which the rest of the script runs."""
        self._optimizers = optimizers

    @property
    def optimizer(self) -> Any:
        """None if there are several."""
        return self._optimizers[0] if len(self._optimizers) == 1 else None

    @optimizer.setter
    def optimizer(self, other: Any) -> None:
        """Take over the implementation of another optimizer of the same class."""
        (ours,) = self._optimizers
        if type(other) is not type(ours):
            raise AttributeError("the optimizer of a script cannot be replaced")
        for group, new in zip(ours.param_groups, other.param_groups, strict=True):
            group.update({name: new[name] for name in ("foreach", "fused") if name in new})


def copied() -> bool:
    """Make a copy of this process that is not its child, if the system can; returns True in the copy."""
    if _fork is None:
        return False
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a script may have closed it, or put anything there
            stream.flush()
    between = _fork()
    if between:
        with suppress(ChildProcessError):  # the script may wait for its children itself
            os.waitpid(between, 0)
        return False
    between = _getpid()
    if _fork():
        _exit(0)  # so that the copy is no child of the script, which may wait for all of its children
    die_with_adopter(between)
    return True


class Reruns:
    """Requests to the waiting copy; before the first step there is none, and requests have no answer."""

    def __init__(self) -> None:
        self.apart: Callable[[], None] = lambda: None
        """Called in each copy: from then on its writes are separate from those of the script."""
        self.take_steps: Callable[[int], None] = lambda _num: None
        """Called in a copy that is to end after as many steps."""
        self.send: Callable[[Trace | None], NoReturn] | None = None
        """Ends a copy with Changes, and receives its Trace, or None if it failed."""
        self.is_asked = True
        """True if anybody needs a Trace of this process."""
        self._copy: Connection | None = None
        self._began = 0.0

    def wait_here(self, program: Callable[[], ScriptProgram]) -> None:
        """Fork: the process itself continues unchanged; copies continue with changes to `program()`."""
        if _fork is None or not self.is_asked:
            return
        self._copy, theirs = Pipe()
        self._began = time.monotonic()
        if not copied():
            theirs.close()
            with suppress(EOFError):
                self._copy.recv()  # wait until the script's files are copied
            return
        self._copy.close()
        self.apart()
        theirs.send(None)
        with suppress(EOFError):
            while True:
                changes: tuple[Change, ...] = theirs.recv()
                this, copy = _getpid(), _fork()
                if not copy:
                    die_with(this)
                    self._go_on(changes, program, theirs)
                    return
                _, status = os.waitpid(copy, 0)
                if status:
                    theirs.send(None)
        _exit(0)

    def _go_on(self, changes: Sequence[Change], program: Callable[[], ScriptProgram], answer: Connection) -> None:
        """Continue as a copy with these Changes, which writes nothing."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            self.apart()
            subject = program()
            subject.take_steps = self.take_steps
            for change in changes:
                change.after_setup(subject)
            rest = subject.rest
            del subject  # objects that the script releases are released here too
        except BaseException:  # with any exception, the Change does not apply
            _exit(1)

        def send(trace: Trace | None) -> NoReturn:
            try:
                rest.close()
            except BaseException:  # only now it turns out that a Change does not apply
                trace = None
            answer.send(trace)
            _exit(0)

        self.send = send

    def trace(self, changes: Sequence[Change]) -> Trace | None:
        """Return the Trace of a copy with these Changes; None if they do not apply or it fails with them."""
        if self._copy is None:
            return None
        patience = _PATIENCE + _PATIENCE_PER_SECOND * (time.monotonic() - self._began)
        with suppress(EOFError, OSError):  # a script may close descriptors that are not its own
            self._copy.send(tuple(changes))
            if self._copy.poll(patience):
                trace: Trace | None = self._copy.recv()
                return trace
        self.forget()
        return None

    def over(self, trace: Trace | None) -> None:
        """Handle the script's end; `trace` is None after a failure.

        A copy with Changes ends here; after a failure, requests end.
        """
        if self.send is not None:
            self.send(trace)
        if trace is None:
            self.forget()

    def forget(self) -> None:
        """Make no more requests."""
        self._copy = None

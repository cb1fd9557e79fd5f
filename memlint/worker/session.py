"""A Session: a child held open, which answers one job after the other, and what it answered before."""

from __future__ import annotations

import base64
import json
import pickle
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from memlint.base.errors import MemlintError, WorkerError
from memlint.base.exchange import MOST_NBYTES
from memlint.capture.capture import Capture
from memlint.capture.codec import decode
from memlint.targets.script import END_SIGNAL
from memlint.worker import endings
from memlint.worker.capture_store import Known, Store
from memlint.worker.child import (
    CAPTURES,
    COMPILING,
    HEARD,
    JOBS,
    PARTIAL,
    REASON,
    REPLY,
    REQUEST,
    STACK,
    STDERR,
    STDOUT,
)
from memlint.worker.endings import Limit
from memlint.worker.jobs import Begin, EstimateAround, Finish, Job
from memlint.worker.protocol import AnyResult, Limits, Reply, Request
from memlint.worker.start import Start, Started, started

if TYPE_CHECKING:
    from memlint.worker.processes import Child

_INTERVAL = 0.1  # seconds between two measurements of the process tree
_LOOK = 0.001, 0.005  # seconds between two looks for a reply: at first, and after a while
_HEARD_PATIENCE = 5.0  # seconds for a script to take notice that it is to end
_END_PATIENCE = 30.0  # seconds for it to go through what was seen so far
_MOST_COMPILING = 4  # time limits that a child may compile beyond its own: what compiles has a limit in processor time
_FINISH_PATIENCE = 5.0  # seconds for a child to say on what its answers depend
_STACK_PATIENCE = 1.0  # seconds for the child to write where it hangs

_Model = TypeVar("_Model", bound=BaseModel)


class Answered(NamedTuple):
    """The answer to a job; empty if a Change means nothing for the program."""

    record: JsonValue
    capture: Capture | None

    @property
    def capture_of_job(self) -> Capture:
        """The Capture of a job that always gives one. Raises EndedError where the child gave none."""
        if self.capture is None:
            raise EndedError(endings.unreadable(ValueError("it holds no capture")))
        return self.capture

    def as_(self, model: type[_Model]) -> _Model:
        """Give the record. Raises EndedError where it is none of that kind: then nothing that the child says counts."""
        try:
            return model.model_validate_json(json.dumps(self.record))  # bytes in it are base64
        except ValidationError as error:
            raise EndedError(endings.unreadable(error)) from error


class JobError(Exception):
    """The error that a job ended in; the child can go on."""

    def __init__(self, error: MemlintError, traceback: tuple[str, ...]) -> None:
        super().__init__(error.message)
        self.error = error
        self.traceback = traceback


class EndedError(BaseException):
    """The child has ended, or was stopped: nothing more can be asked. No rule catches it."""

    def __init__(self, error: MemlintError, traceback: tuple[str, ...] = (), reason: str = "") -> None:
        super().__init__(error.message)
        self.error = error
        self.traceback = traceback
        self.reason = reason or error.message
        """Why, as the end of a sentence about a script."""


class AnySession:
    """The further requests that a look at a Capture may make. Here nothing is known beyond the Capture."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.estimates: dict[str, dict[str, Any]] = {}
        """Estimates that follow from its answers, by number of the Workload: those known before, and new ones."""

    @property
    def is_script(self) -> bool:
        """True if it runs a script."""
        return self.request.script is not None

    @property
    def knows_variables(self) -> bool:
        """True if it can say which variables hold something, and run a program once more."""
        return False

    has_tables = knows_variables
    """True if it can estimate other sizes."""

    @property
    def seconds_left(self) -> float:
        """Seconds until the time limit; all of them where nothing of a program runs."""
        return self.request.settings.timeout

    def ask(self, _job: Job) -> Answered:
        """Do a job. Raises JobError for one that failed, EndedError where nothing can be asked any more."""
        return Answered(None, None)

    def begin(self, _job: EstimateAround) -> None:
        """Begin with a job that is asked later, where that helps."""

    def can_answer(self, _job: Job) -> bool:
        """Return True if no program has to start for this job."""
        return False

    def rules_begin(self) -> None:
        """Give what follows, rules, as much time as the program had."""

    def renew_time(self) -> None:
        """Let the time limit begin anew."""

    def keep(self, _result: AnyResult) -> None:
        """Keep what there is so far."""

    def tell_compiling(self, _tell: Callable[[str], None]) -> None:
        """Call `tell` with what is compiled whenever that changes, and with an empty text at the end."""

    def last_record(self, _model: type[_Model]) -> _Model | None:
        """Give the last partial answer."""
        return None

    def last_capture(self) -> Capture | None:
        """Give what was seen of a script when it was looked at last."""
        return None


class FileSession(AnySession):
    """A Session about a file: it knows what the file holds, and no Change means anything."""


class Session(AnySession, AbstractContextManager["Session"]):
    """Asks the child of one Request, which starts when something is asked that is not known."""

    def __init__(
        self,
        request: Request,
        limits: Limits,
        start: Start,
        *,
        place: Path | None = None,
        store: Store | None = None,
        on_wait: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        """`start` starts a child in the folder of its exchange, which is made in `place`; `store` knows answers.

        `on_wait` is called about ten times a second with the seconds that the child has run.
        """
        super().__init__(request)
        self.limits = limits
        self.partial: AnyResult | None = None
        """The result so far."""
        self.is_interrupted = False
        """True if Ctrl-C came and the script has answered with what was seen until then."""
        self._start_child = start
        self._place = place
        self._store = store
        self.estimates = {} if store is None else store.estimates()
        self.is_begun = False
        """True if a child was asked something."""
        self._on_wait = on_wait
        self._stack = ExitStack()
        self._child: Child | None = None
        self._number = 0
        self._read = 0
        self._begin = self._deadline = 0.0
        self._compiling = ""
        self._tell_compiling: Callable[[str], None] = lambda _doing: None
        self._compiled_seconds = 0.0
        self._has_rules = False
        self._has_spare_core = False
        self._new: dict[str, Known] = {}
        self._has_failed = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the child; no process that it started is left."""
        self._stack.close()

    @property
    def knows_variables(self) -> bool:
        """True unless it runs a script."""
        return not self.is_script

    has_tables = knows_variables

    def ask(self, job: Job) -> Answered:
        """Do a job. Raises JobError for one that failed, EndedError where the child is gone or has to go."""
        key = repr(job)
        known = self._known(key)
        if known is not None:
            return Answered(known.record, None if known.capture is None else self._decoded(known))
        if not self.is_begun:
            self._begin_to_ask()
        self._number += 1
        self._exchange.say(JOBS, base64.b64encode(pickle.dumps(job)))
        reply = self._reply()
        if reply.failure is not None:
            self._has_failed = True
            error, traceback = endings.reported(reply.failure, self.limits), tuple(reply.failure.traceback)
            if endings.is_of_child(reply.failure):
                raise EndedError(error, traceback)
            raise JobError(error, traceback)
        content = None
        if reply.capture is not None:
            offset, nbytes = reply.capture
            try:
                content = self._exchange.since(CAPTURES, offset, min(nbytes, MOST_NBYTES))
            except OSError as error:  # user code has written the reply: there is no such place
                raise EndedError(endings.unreadable(error)) from error
        known = self._new[key] = Known(reply.answer, content)
        return Answered(known.record, None if content is None else self._decoded(known))

    def begin(self, job: EstimateAround) -> None:
        """Let the child begin with a job that is asked later, if it was asked something and a core is free."""
        if self._has_spare_core and self.is_begun and self._known(repr(job)) is None:
            begin = Begin(job)
            self.ask(begin)
            del self._new[repr(begin)]

    def begin_again(self, request: Request) -> None:
        """Ask a new child from now on, with another request; nothing of what the last one has answered counts."""
        self._stack.close()
        self.request, self.partial = request, None
        self._stack, self._child, self._store, self.is_begun = ExitStack(), None, None, False
        self._number = self._read = 0
        self._has_rules = self._has_failed = False
        self._new, self.estimates = {}, {}

    def can_answer(self, job: Job) -> bool:
        """Return True if the answer is known, or a child is there to give it."""
        return self.is_begun or self._known(repr(job)) is not None

    def _known(self, key: str) -> Known | None:
        return self._new.get(key) or (self._store.known(key) if self._store else None)

    def rules_begin(self) -> None:
        """Give what follows, rules, as much time as the program had; once."""
        if not self._has_rules:
            self._has_rules = True
            self.renew_time()

    def renew_time(self) -> None:
        """Let the time limit begin anew."""
        self._deadline = time.monotonic() + self.limits.seconds
        self._compiled_seconds = 0.0

    @property
    def seconds_left(self) -> float:
        """Seconds until the time limit; of a Session without a child all of them."""
        return self.limits.seconds if not self.is_begun else max(0.0, self._deadline - time.monotonic())

    def keep(self, result: AnyResult) -> None:
        """Keep what there is so far: it counts if the child is stopped or fails."""
        self.partial = result

    def tell_compiling(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with what is compiled whenever that changes, and with an empty text at the end."""
        self._tell_compiling = tell

    def last_record(self, model: type[_Model]) -> _Model | None:
        """Give the last partial answer of the child."""
        with suppress(ValueError):
            if self.is_begun and (message := self._exchange.last(PARTIAL)):
                return model.model_validate_json(message)
        return None

    def last_capture(self) -> Capture | None:
        """Give what was seen of a script when it was looked at last."""
        with suppress(ValueError, MemlintError, zlib.error):
            if self.is_begun and (message := self._exchange.last(PARTIAL)):
                return decode(zlib.decompressobj().decompress(base64.b64decode(message), MOST_NBYTES))
        return None

    def finish(self) -> None:
        """Keep what was answered for the next time, if nothing failed."""
        if self._store is None or self._has_failed:
            return
        if self.is_begun:
            self._number += 1
            self._exchange.say(JOBS, base64.b64encode(pickle.dumps(Finish())))
            self._deadline = time.monotonic() + _FINISH_PATIENCE
            try:
                dependencies = self._reply().dependencies
            except EndedError:
                return
            self._store.write(self._new, dependencies, self.output)
        self._store.write_estimates(self.estimates)

    @property
    def output(self) -> tuple[str, str]:
        """The beginning of what the code wrote to stdout and stderr."""
        if not self.is_begun:
            return self._store.output if self._store else ("", "")
        return endings.text_of(self._exchange, STDOUT), endings.text_of(self._exchange, STDERR)

    def _decoded(self, known: Known) -> Capture:
        assert known.capture is not None
        try:
            return decode(known.capture)
        except MemlintError as error:
            raise EndedError(endings.unreadable(error)) from error

    def start(self, running: Started | None = None) -> None:
        """Start the child, which may be before it is known what it is asked: it imports what it needs for a target.

        If one is `running`, it is that one.
        """
        from memlint.worker.processes import ProcessTree  # noqa: PLC0415 -- a look at what is known does without

        if running is None:
            running = self._stack.enter_context(started(self._start_child, self._place))
        self._exchange, self._child = running
        self._tree = self._stack.enter_context(ProcessTree())
        self._tree.grow_from(running.child)

    def ask_about(
        self, request: Request, limits: Limits, store: Callable[[], Store | None], on_wait: Callable[[float], None]
    ) -> None:
        """Take up the request, its limits and whom to call, before anything is asked. No other child runs beside it.

        `store` gives what is known of it, where it is another request than that of the beginning.
        """
        self._has_spare_core = True
        assert not self.is_begun, "nothing was asked"
        if request != self.request:
            self._store = store()
            self.estimates = {} if self._store is None else self._store.estimates()
        self.request, self.limits, self._on_wait = request, limits, on_wait

    def _begin_to_ask(self) -> None:
        if self._child is None:
            self.start()
        folder = self._exchange.folder
        written = folder / f"{REQUEST}.new"
        written.write_text(self.request.model_dump_json(), encoding="utf-8")
        written.replace(folder / REQUEST)  # the child waits for it
        self.is_begun = True
        self._begin = time.monotonic()
        self.renew_time()

    def _reply(self) -> Reply:
        """Wait for the reply to the last job. Raises EndedError, and KeyboardInterrupt after it was dealt with."""
        awaits_script = self.is_script and not self._has_rules
        try:
            reply = self._watched(self.limits)
        except KeyboardInterrupt:
            reason = f"it was stopped by an interrupt after {time.monotonic() - self._begin:.1f} s"
            if not (awaits_script and self._is_heard(reason)):
                raise
            self.is_interrupted = True
            self._deadline = time.monotonic() + _END_PATIENCE
            reply = self._watched(self.limits)
            if reply == "seconds":  # it has nothing to say: it had not begun, or takes too long
                raise
        if isinstance(reply, Reply):
            return reply
        broken = reply
        if awaits_script and self._is_heard(endings.stop_reason(broken, self.limits)):
            self._deadline = time.monotonic() + _END_PATIENCE
            reply = self._watched(_wider(self.limits, broken))
            if isinstance(reply, Reply):
                self._deadline = time.monotonic() + self.limits.seconds
                return reply
        if broken == "seconds":
            self._ask_for_stack()
        reason = endings.stop_reason(broken, self.limits).partition("\n")[0]
        error = endings.stopped(broken, self._exchange, self.limits, is_script=self.is_script)
        raise EndedError(error, reason=reason)

    def _watched(self, limits: Limits) -> Reply | Limit:
        """Wait for the reply to the last job, or until the child breaks a limit. Raises EndedError if it ends."""
        assert self._child is not None
        look, most = _LOOK
        measured = 0.0
        while True:
            reply = self._next_reply()
            if reply is not None:
                return reply
            time.sleep(look)  # `wait` with a time would look far more often
            try:
                status = self._child.wait(0)
            except subprocess.TimeoutExpired:
                look = min(most, 1.2 * look)
            else:
                reply = self._next_reply()
                if reply is not None:
                    return reply
                if status == -END_SIGNAL:  # asked to end before the script had begun
                    return "seconds"
                raise EndedError(endings.vanished(self._exchange, status, self.limits, is_script=self.is_script))
            now = time.monotonic()
            if now - measured < _INTERVAL:
                continue
            self._wait_for_compiler(now - measured if measured else 0.0)
            measured = now
            self._on_wait(now - self._begin)
            broken = self._broken(limits)
            if broken is not None:
                return broken

    def _wait_for_compiler(self, seconds: float) -> None:
        """Let the time limit wait for these seconds if the child compiles, which may take long on a busy machine."""
        with suppress(ValueError):
            doing = (self._exchange.last(COMPILING) or b"").decode(errors="replace")
            if doing != self._compiling:
                self._compiling = doing
                self._tell_compiling(doing)
            if doing and self._compiled_seconds < _MOST_COMPILING * self.limits.seconds:
                self._compiled_seconds += seconds
                self._deadline += seconds

    def _broken(self, limits: Limits) -> Limit | None:
        if time.monotonic() > self._deadline:
            return "seconds"
        processes, nbytes = self._tree.usage()
        if processes > limits.processes:
            return "processes"
        if nbytes > limits.nbytes and self._tree.shared_once() > limits.nbytes:
            return "nbytes"
        written = self._exchange.nbytes(STDOUT) + self._exchange.nbytes(STDERR)
        return "output_nbytes" if written > limits.output_nbytes else None

    def _next_reply(self) -> Reply | None:
        """Give the reply to the last job, if it is there; what stands before it is read over."""
        try:
            nbytes = self._exchange.nbytes(REPLY)
            if nbytes < self._read:  # the child has begun the file anew
                self._read = 0
            if nbytes == self._read:
                return None
            content = self._exchange.since(REPLY, self._read)
            whole, end, _ = content.rpartition(b"\n")
            self._read += len(whole) + len(end)
            for line in whole.split(b"\n"):
                reply = Reply.model_validate_json(line) if line.strip() else None
                if reply is not None and reply.number == self._number:
                    return reply
        except ValueError as error:
            raise EndedError(endings.unreadable(error)) from error
        return None

    def _is_heard(self, reason: str) -> bool:
        """Ask a script to answer with what was seen so far; say whether it took notice, or has answered meanwhile."""
        assert self._child is not None
        self._exchange.say(REASON, reason.encode())
        self._child.send_signal(END_SIGNAL)
        deadline = time.monotonic() + _HEARD_PATIENCE
        while time.monotonic() < deadline:
            if self._exchange.nbytes(HEARD) or self._exchange.nbytes(REPLY) > self._read:
                return True
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_INTERVAL)
                return True
        return False

    def _ask_for_stack(self) -> None:
        if sys.platform == "win32" or self._child is None:
            return
        self._child.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + _STACK_PATIENCE
        while time.monotonic() < deadline and not self._exchange.nbytes(STACK):
            time.sleep(0.02)

    def interruption(self) -> WorkerError:
        """Give the error of a child that was stopped because nobody waits for it any more."""
        if not self.is_begun:
            return endings.not_begun()
        return endings.interrupted(time.monotonic() - self._begin, self._exchange)

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self


def _wider(limits: Limits, broken: Limit) -> Limits:
    """Widen the limit that a script has broken which is to end: to say what was seen takes some, too."""
    return limits if broken == "seconds" else replace(limits, **{broken: 2 * getattr(limits, broken)})

"""Carry out one task: a child within limits, asked by the function of the task."""

import os
import subprocess
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import IO

from memlint.base.errors import MemlintError, WorkerError
from memlint.worker import endings
from memlint.worker.capture_store import Store
from memlint.worker.endings import OutOfMemoryError
from memlint.worker.protocol import Answer
from memlint.worker.session import EndedError, JobError, Session
from memlint.worker.start import start_python
from memlint.worker.task import Task


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a child ran: `answer` has what there was until then."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


def carry_out(
    task: Task,
    *,
    environment: Mapping[str, str | None] = MappingProxyType({}),
    store: Store | None = None,
    on_wait: Callable[[float], None] = lambda _seconds: None,
) -> Answer:
    """Give the Answer of a task; no process that was started for it is left when this returns or raises.

    Variables in `environment` override the child's usual ones, and None leaves one as this process has it; `store`
    knows answers of earlier children; `on_wait` is called about ten times a second with the seconds gone. Raises
    nothing that happened in the child, and Interrupted on Ctrl-C.
    """
    with new_session(task, environment=environment, store=store, on_wait=on_wait) as session:
        return answered(task, session)


def new_session(
    task: Task,
    *,
    environment: Mapping[str, str | None] = MappingProxyType({}),
    store: Store | None = None,
    on_wait: Callable[[float], None] = lambda _seconds: None,
) -> Session:
    """Give a Session whose child is a new Python; the arguments are those of `carry_out`."""

    def start(exchange: Path, stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        arguments = (str(exchange), str(os.getpid()), str(task.limits.nbytes))
        return start_python(task.child, *arguments, stdout=stdout, stderr=stderr, environment=environment)

    return Session(task.request, task.limits, start, store=store, on_wait=on_wait)


def answered(task: Task, session: Session) -> Answer:
    """Give the Answer of a task whose Session is open.

    Raises Interrupted, and what goes wrong before there is a child.
    """
    try:
        result = task.ask(session)
        session.finish()
    except EndedError as ended:
        return _failed(session, ended.error, ended.traceback)
    except JobError as failed:
        return _failed(session, failed.error, failed.traceback)
    except Exception as error:  # of this task: the others have their answers
        if not session.is_begun:  # nothing can be asked at all
            raise
        if isinstance(error, MemlintError):
            return _failed(session, error)
        answer = _failed(session, endings.of_asking(error))
        return replace(answer, stderr=answer.stderr + "".join(traceback.format_exception(error)))
    except KeyboardInterrupt as error:
        raise Interrupted(_failed(session, session.interruption())) from error
    answer = Answer(result, None, (), *session.output)
    if session.is_interrupted:
        raise Interrupted(answer)
    return answer


def _failed(session: Session, error: MemlintError, lines: tuple[str, ...] = ()) -> Answer:
    out_of_memory = isinstance(error, OutOfMemoryError)
    if out_of_memory:
        error = WorkerError(error.message, error.hint)
    return Answer(None, error, lines, *session.output, out_of_memory, partial=session.partial)

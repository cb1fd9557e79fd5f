"""A task for another machine, as JSON beside the files of its project, and its Answer as JSON."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from memlint.base import errors
from memlint.base.errors import MemlintError, WorkerError
from memlint.worker.protocol import Answer, Failure, Limits, Request, Result
from memlint.worker.ray.archive import unpack
from memlint.worker.supervise import Interrupted, ask

if TYPE_CHECKING:
    from memlint.worker.protocol import Task

_VARIABLES = ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE")
"""Environment variables that change what a step takes; all others are those of the other machine."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Sent(_Message):
    request: Request
    limits: Limits
    analyse: str
    directory: str
    """Where the command was typed."""
    variables: dict[str, str]


class _Returned(_Message):
    """An Answer; what its result depends on is not known here."""

    result: Result | None
    failure: Failure | None
    partial: Result | None
    stdout: str
    stderr: str


def sent(task: Task) -> str:
    """JSON of `task`, with paths of this machine."""
    return _Sent(
        request=task.request,
        limits=task.limits,
        analyse=task.analyse,
        directory=str(Path.cwd()),
        variables={name: os.environ.get(name, "") for name in _VARIABLES},
    ).model_dump_json()


def carried_out(archive: bytes, task: str) -> str:
    """JSON of the Answer to what `sent` made, with its paths; `archive` is what `pack` made of the project.

    The project is unpacked into a directory that is gone when this returns, and its code runs in a child process only.
    KeyboardInterrupt, where it comes while the child runs, becomes the Answer with what the child had told.
    """
    asked = _Sent.model_validate_json(task)
    there = Path(asked.request.root)
    with tempfile.TemporaryDirectory(prefix="memlint-") as name:
        root = Path(name).resolve() / (there.name or "project")
        unpack(archive, root)
        request = Request.model_validate(moved(asked.request.model_dump(mode="json"), there, root))
        directory = Path(moved(asked.directory, there, root))
        if not directory.is_relative_to(root):
            directory = root
        directory.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(directory):
            try:
                answer = ask(request, asked.limits, analyse=asked.analyse, environment=asked.variables)
            except Interrupted as error:
                answer = error.answer
        back = moved(_returned(answer).model_dump(mode="json"), root, there)
    return _Returned.model_validate(back).model_dump_json()


def received(returned: str) -> Answer:
    """The Answer that `carried_out` gave."""
    said = _Returned.model_validate_json(returned)
    failure = said.failure
    return Answer(
        result=said.result,
        error=None if failure is None else _error(failure),
        traceback=() if failure is None else tuple(failure.traceback),
        stdout=said.stdout,
        stderr=said.stderr,
        out_of_memory=failure is not None and failure.memory,
        partial=said.partial,
    )


def moved(value: Any, before: Path, after: Path) -> Any:
    """`value` with the directory `before` replaced by `after` in every text in it, and in the names of its tables."""
    return _moved(value, re.compile(rf"(?<![\w./-]){re.escape(str(before))}(?![\w-]|\.\w)"), str(after))


def _moved(value: Any, before: re.Pattern[str], after: str) -> Any:
    if isinstance(value, str):
        return before.sub(lambda _match: after, value)
    if isinstance(value, dict):
        return {_moved(key, before, after): _moved(item, before, after) for key, item in value.items()}
    return [_moved(item, before, after) for item in value] if isinstance(value, list | tuple) else value


def _returned(answer: Answer) -> _Returned:
    failure = None
    if answer.error is not None:
        failure = Failure(
            kind=type(answer.error).__name__,
            message=answer.error.message,
            hint=answer.error.hint,
            traceback=list(answer.traceback),
            memory=answer.out_of_memory,
        )
    return _Returned(
        result=answer.result, failure=failure, partial=answer.partial, stdout=answer.stdout, stderr=answer.stderr
    )


def _error(failure: Failure) -> MemlintError:
    kind = getattr(errors, failure.kind, WorkerError)
    return kind(failure.message, failure.hint) if issubclass(kind, MemlintError) else WorkerError(failure.message)

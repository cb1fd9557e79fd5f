"""From targets as typed to what the children of a sweep or a fit answer, with whatever went wrong."""

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel

from memlint.base.errors import NO_MODULE_FOUND, TargetError
from memlint.base.version import __version__, install_command
from memlint.commands.asking import with_scripts_asked
from memlint.commands.targets import distinct, resolve
from memlint.report.paths import relative
from memlint.worker.jobs import FitsSoFar, Job, Sweeps
from memlint.worker.parallel import answers_to
from memlint.worker.protocol import Answer, Request
from memlint.worker.session import EndedError, JobError, Session
from memlint.worker.task import Task


class Executor(Protocol):
    """Runs tasks somewhere; `memlint.worker.parallel.answers_to` is the one that runs them here."""

    def __call__(
        self, tasks: Sequence[Task], *, on_wait: Callable[[Task, float], None]
    ) -> Iterator[tuple[int, Answer]]:
        """Yield the number of each task and its Answer, as they complete."""


Document = TypeVar("Document", bound=BaseModel)
_Tables = TypeVar("_Tables", Sweeps, FitsSoFar)


class Missing(NamedTuple):
    """A target of which something is missing."""

    target: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Gathered(Generic[Document]):
    """The result of a command, and what went wrong."""

    document: Document
    missing: tuple[Missing, ...]
    interrupted: bool

    @property
    def status(self) -> int:
        """0: all is there; 2: something could not be analysed; 130: interrupted."""
        return 130 if self.interrupted else 2 if self.missing else 0


def asked(session: Session, job: Job, model: type[_Tables]) -> _Tables:
    """Give the answer to a job that grows; what there is of it counts if the child is stopped or fails."""
    try:
        return session.ask(job).as_(model)
    except (EndedError, JobError, KeyboardInterrupt):
        so_far = session.last_record(model)
        if so_far is not None:
            session.keep(so_far)
        raise


def gather(
    targets: Sequence[str],
    options: dict[str, object],
    tasks_of: Callable[[Request], Iterable[Task]],
    document: type[Document],
    key: str,
    name: Callable[[Any], str],
    *,
    on_wait: Callable[[str, float], None],
    executor: Executor = answers_to,
) -> Gathered[Document]:
    """Run the tasks of every target, and put their answers, with relative paths, into a `document`.

    `key` is the field of `document` and of the answers where they are, and `name` says what one is about that has
    an error. A task that is stopped gives what it had so far. Raises MemlintError for arguments and configuration that
    make no sense; `options` are those of Settings.
    """
    if importlib.util.find_spec("torch") is None:
        raise TargetError("PyTorch is not installed, so no model can be built", install_command("torch"))
    resolved = list(distinct([resolve(argument, options) for argument in targets]))
    named = [request for target in resolved for request in target.requests]
    requests = with_scripts_asked(named, on_wait, cache=True).requests
    tasks = [task for request in requests for task in tasks_of(request)]
    answers: dict[int, Answer] = {}
    interrupted = False
    try:
        for number, answer in executor(tasks, on_wait=lambda task, seconds: on_wait(task.request.target, seconds)):
            answers[number] = answer  # noqa: PERF403 (what there is when it is interrupted)
    except KeyboardInterrupt:
        interrupted = True
    missing = [Missing(entry, error.message, error.hint) for target in resolved for entry, error in target.lost]
    parts: list[Any] = []
    torch = None
    for task, answer in ((tasks[number], answers[number]) for number in sorted(answers)):
        result: Any = answer.result or answer.partial
        answered: Any = relative(result.model_dump(mode="json")[key], Path.cwd()) if result else []
        torch = result.torch if result else torch
        parts += answered
        if answer.error is not None:
            missing.append(Missing(task.request.target, answer.error.message, answer.error.hint or ""))
        elif not answered and task.request.named:
            missing.append(Missing(task.request.target, NO_MODULE_FOUND, "Name the class: model.py::Net."))
    made = document.model_validate({"tool": f"memlint {__version__}", "torch": torch, key: parts})
    failed = (Missing(name(part), part.error, part.hint) for part in getattr(made, key) if part.error is not None)
    return Gathered(made, (*dict.fromkeys(missing), *failed), interrupted)

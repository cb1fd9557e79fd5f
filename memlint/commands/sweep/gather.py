"""From targets as typed to what the children of a sweep or a fit told, with whatever went wrong."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from memlint.base.errors import TargetError
from memlint.commands.targets import distinct, resolve
from memlint.report.paths import relative
from memlint.worker.parallel import answers_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from memlint.worker.protocol import Answer, Request, Task


class Executor(Protocol):
    """Where tasks run: as `memlint.worker.parallel.answers_to`, which runs them here."""

    def __call__(
        self, tasks: Sequence[Task], *, on_wait: Callable[[Task, float], None]
    ) -> Iterator[tuple[int, Answer]]:
        """Yield the number of each task and its Answer, as they complete."""


Told = TypeVar("Told")


class Failure(NamedTuple):
    """A target of which something is missing."""

    target: str
    message: str
    hint: str


class Gathered(NamedTuple):
    """What the children told, and what went wrong."""

    told: list[Any]
    torch: str | None
    failures: tuple[Failure, ...]
    interrupted: bool


@dataclass(frozen=True, slots=True)
class Result(Generic[Told]):
    """What a command has to say, and what went wrong."""

    told: Told
    failures: tuple[Failure, ...]
    interrupted: bool

    @property
    def status(self) -> int:
        """0: all is there; 2: something could not be analysed; 130: interrupted."""
        return 130 if self.interrupted else 2 if self.failures else 0


def gather(
    targets: Sequence[str],
    options: dict[str, object],
    tasks_of: Callable[[Request], Iterable[Task]],
    key: str,
    on_wait: Callable[[str, float], None],
    executor: Executor = answers_to,
) -> Gathered:
    """Run the tasks of every target; `key` is where in `Result.detail` the answers are. Paths become relative ones.

    A task that is stopped gives what it had told so far. Raises MemlintError for arguments and configuration that make
    no sense; `options` are those of Settings.
    """
    if importlib.util.find_spec("torch") is None:
        raise TargetError("PyTorch is not installed, so no model can be built", "pip install 'torch-memlint[torch]'")
    resolved = list(distinct([resolve(argument, options) for argument in targets]))
    tasks = [task for target in resolved for request in target.requests for task in tasks_of(request)]
    answers: dict[int, Answer] = {}
    interrupted = False
    try:
        for number, answer in executor(tasks, on_wait=lambda task, seconds: on_wait(task.request.target, seconds)):
            answers[number] = answer  # noqa: PERF403 (what there is when it is interrupted)
    except KeyboardInterrupt:
        interrupted = True
    told: list[Any] = []
    lost = (entry for target in resolved for entry in target.lost)
    failures = dict.fromkeys(Failure(name, error.message, error.hint) for name, error in lost)
    torch = None
    for task, answer in ((tasks[number], answers[number]) for number in sorted(answers)):
        result = answer.result or answer.partial
        found: Any = relative(result.detail[key], Path.cwd()) if result else []
        torch = result.torch if result else torch
        told += found
        if answer.error is not None:
            failures[Failure(task.request.target, answer.error.message, answer.error.hint or "")] = None
        elif not found and task.request.named:
            hint = "Name the class: model.py::Net."
            failures[Failure(task.request.target, "no torch.nn.Module found", hint)] = None
    return Gathered(told, torch, tuple(failures), interrupted)

"""Runs of the scripts that build a file's models, where nothing else gives an Estimate: their steps are the answer."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from memlint.base.errors import MemlintError, WorkloadError
from memlint.commands.analyse.analyse import analyse
from memlint.commands.analyse.look import Look
from memlint.commands.asking import Attempt, ScriptsAsked, classes_of, may_ask, request_of
from memlint.config import Settings
from memlint.report.model import Error, Workload
from memlint.source.leading_scripts import LeadingScript, shown_as
from memlint.source.scripts import only_runs
from memlint.source.text import source_at
from memlint.source.typed_commands import TypedCommand
from memlint.worker.protocol import Answer, Limits, Request, Result
from memlint.worker.task import Task

_LEAST_SECONDS = 20.0
"""Seconds in which a script may come to its steps; with fewer left none is run."""
_DECIDED_BY_SCRIPTS = {"batch", "dtype", "mode", "optimizer", "strategy", "dimensions"}
"""Settings of a Workload that a script which is run decides itself."""


def with_scripts_run(
    asked: ScriptsAsked,
    answers: Sequence[Answer],
    look: Look,
    on_wait: Callable[[str, float], None],
    seconds: float,
    *,
    cache: bool,
) -> tuple[list[Answer], Mapping[int, Sequence[Attempt]]]:
    """Return the answers, those of Requests without any Estimate by the script that builds the model, if it gives one.

    The scripts may take these `seconds` together. Also returns the attempts, with the errors of what was run.
    """
    from memlint.worker.parallel import answers_to  # noqa: PLC0415 -- most commands run none

    answered, attempts = list(answers), {number: list(each) for number, each in asked.attempts.items()}
    running = {
        number: attempt
        for number, (request, answer) in enumerate(zip(asked.requests, answers, strict=True))
        if not _has_estimate(answer) and _may_run(request.settings)
        for attempt in _likeliest(request, attempts.get(number, ()))
    }
    if not running or seconds < _LEAST_SECONDS:
        return answered, attempts
    numbers = list(running)
    ask = partial(analyse, look=look.model_copy(update={"sweep": False}))
    tasks = [
        Task(_request(asked.requests[n], running[n]), _limits(asked.requests[n], seconds), ask, cache) for n in numbers
    ]
    begin = time.monotonic()

    def is_over(task: Task) -> bool:
        return time.monotonic() - begin > task.limits.seconds

    for place, answer in answers_to(tasks, on_wait=lambda task, passed: on_wait(task.request.target, passed)):
        number = numbers[place]
        attempt = running[number]
        workload = _only(answer)
        if workload is not None and workload.estimate is not None and workload.error is None:
            answered[number] = _labelled(answer, asked.requests[number], attempt)
        elif (error := _failure(answer)) is not None and not is_over(tasks[place]):
            failure = WorkloadError(error.message, error.hint)
            others = (each for each in attempts.get(number, ()) if each.script.command != attempt.script.command)
            attempts[number] = [attempt._replace(error=failure), *others]
    return answered, attempts


def _has_estimate(answer: Answer) -> bool:
    result = answer.result or answer.partial
    return isinstance(result, Result) and any(each.estimate is not None for each in result.workloads)


def _may_run(settings: Settings) -> bool:
    """Return True unless a setting is typed that a script decides itself."""
    return not any(getattr(settings, name) for name in _DECIDED_BY_SCRIPTS)


def _likeliest(request: Request, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the first attempt that has built a class of the file, or else the file itself if it trains or is a script.

    It is in a list, which is empty where there is neither. A script has the arguments that a document gives it.
    """
    building = [each for each in attempts if each.has_built(request)]
    if building or not may_ask(request) or request.qualname:
        return building[:1]
    path, source = Path(request.path or ""), source_at(request.path or "")
    own = [each for each in attempts if each.script.command.script == path and not each.is_refused]
    if not own and source is not None and only_runs(source):
        own = [Attempt(LeadingScript(TypedCommand(path, "", (), Path.cwd()), is_certain=True, trains=True))]
    return [each._replace(built=None) for each in own[:1]]


def _request(request: Request, attempt: Attempt) -> Request:
    kind = next(iter(classes_of(request, attempt.built)), None) if attempt.built is not None else None
    return request_of(attempt.script.command, request, name="" if kind is None else kind[1].name)


def _limits(request: Request, seconds: float) -> Limits:
    return Limits(seconds=min(seconds, request.settings.timeout), nbytes=request.settings.memory_limit)


def _only(answer: Answer) -> Workload | None:
    result = answer.result or answer.partial
    return result.workloads[0] if isinstance(result, Result) and result.workloads else None


def _failure(answer: Answer) -> MemlintError | Error | None:
    """Return the error of a run that gave no Estimate."""
    workload = _only(answer)
    return answer.error if workload is None or workload.error is None else workload.error


def _labelled(answer: Answer, request: Request, attempt: Attempt) -> Answer:
    """Return the answer with the words that say which script builds the model."""
    assert isinstance(answer.result, Result), "it has an Estimate and no error"
    if attempt.built is None:
        return answer
    (model, kind), *_ = classes_of(request, attempt.built)
    of_part = "" if kind is model else f"part of {model.name}, which is run whole; "
    built_by = f"{of_part}as {shown_as(attempt.script.command)} builds it"
    workloads = [each.model_copy(update={"built_by": built_by}) for each in answer.result.workloads]
    return Answer(answer.result.model_copy(update={"workloads": workloads}), stdout=answer.stdout, stderr=answer.stderr)

"""Before a file's models are guessed: scripts of its project are asked how they build them.

Each runs as `memlint run` runs it, only to where it calls its model. The first that has built a class of the file
answers. If that one only evaluates, and one that trains ended before it built the class, the settings are the latter's.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from memlint.base.errors import MemlintError
from memlint.commands.targets import is_declared
from memlint.report.model import Record, Workload
from memlint.source.leading_scripts import LeadingScript, LeadingScripts, shown_as
from memlint.source.typed_commands import TypedCommand, concrete
from memlint.targets.built import Asked, Built, BuiltClass, BuiltModel
from memlint.targets.script import Script
from memlint.worker.jobs import TellBuilt, WhatWasBuilt
from memlint.worker.protocol import Limits, Request
from memlint.worker.session import Session
from memlint.worker.task import Task

_MOST, _MOST_BEGUN = 3, 6
"""Scripts that are asked about one file, and of those, together with scripts that refuse their arguments at once."""
_SECONDS, _ALL_SECONDS = 45.0, 60.0
"""Time limit of one script, and the time after which no further one is begun, on a machine that does nothing else."""
_MOST_SLOWNESS = 3.0


class _Told(Record):
    """Result of asking one script."""

    built: Built


class Attempt(NamedTuple):
    """A script that was asked about a file."""

    script: LeadingScript
    built: Built | None = None
    """Everything that it had built when it ended; None if its child gave no answer."""
    error: MemlintError | None = None
    """The error of its run, as `memlint run` runs it; None if it was not run, or not to an end."""

    @property
    def is_refused(self) -> bool:
        """True if it cannot be typed so."""
        return self.built is not None and self.built.ending.is_refusal

    def has_built(self, request: Request) -> bool:
        """Return True if it has built a class of the requested file, or the one that is asked for."""
        return self.built is not None and any(classes_of(request, self.built))


class ScriptsAsked(NamedTuple):
    """The Requests with the answers of the first scripts that build what they ask about."""

    requests: list[Request]
    attempts: Mapping[int, Sequence[Attempt]]
    """By number of the Request: the scripts that were asked, in order."""

    def noted(self, workload: Workload) -> Workload:
        """Return a Workload, which says in its headline if scripts that train it ended before they built it."""
        number = next((n for n in self.attempts if self.requests[n].path == str(Path(workload.file).resolve())), None)
        tried = [] if number is None or workload.script is not None else self.attempts[number]
        if number is None:
            return workload
        built_it = next((shown_as(each.script.command) for each in tried if each.has_built(self.requests[number])), "")
        if built_it:
            if workload.built_by:
                return workload
            return workload.model_copy(update={"built_by": f"not as {built_it} builds it, which cannot be repeated"})
        for script, built, _error in tried:
            if not (script.is_certain and script.trains) or built is None:
                continue
            passed_over = f"memlint {built.passed_over}" if built.passed_over else ""
            if reason := built.ending.reason if built.ending.is_failure else passed_over:
                early = f"not as {shown_as(script.command)} builds it, which ended before that: {reason}"
                text = "; ".join(filter(None, (workload.built_by, early)))
                return workload.model_copy(update={"built_by": text})
        return workload


def with_scripts_asked(
    requests: Sequence[Request], on_wait: Callable[[str, float], None], *, cache: bool
) -> ScriptsAsked:
    """Return the requests with what scripts say of each file that was named; with `cache` that is kept.

    Nothing is asked about what is declared, called with arguments or no Python file.
    """
    answered = list(requests)
    scripts = {number: _scripts(request, cache=cache) for number, request in enumerate(requests) if may_ask(request)}
    pending = {number: iter(found) for number, found in scripts.items()}
    trainers: dict[int, tuple[TypedCommand, Built | None]] = {}
    attempts = defaultdict[int, list[Attempt]](list)
    begin = time.monotonic()
    for _round in range(_MOST_BEGUN):
        asking = {
            number: script
            for number, left in pending.items()
            if sum(not each.is_refused for each in attempts[number]) < _MOST
            and (script := next(left, None)) is not None
        }
        if not asking or time.monotonic() - begin > _ALL_SECONDS * slowness():
            break
        told = dict(_told(requests, {n: each.command for n, each in asking.items()}, on_wait, cache=cache))
        for number, script in asking.items():
            command, is_certain, trains = script
            built = told.get(number)
            attempts[number].append(Attempt(script, built))
            if built is not None and attempts[number][-1].has_built(requests[number]):
                is_called = any(kind.inputs for _model, kind in classes_of(requests[number], built))
                if is_called or not command.code:  # an example that only builds it says nothing of its inputs
                    del pending[number]
                if requests[number] is not answered[number] and not (is_called or trains):  # an example has built it
                    continue
                answer = _answer(script, built, scripts[number], is_called=is_called)
                if number in trainers and not trains and not built.optimizers:
                    trainer, its = trainers[number]
                    answer = answer.trained_by(shown_as(trainer), its)
                answered[number] = requests[number].model_copy(update={"asked": answer})
            elif trains and (is_certain or built is None or not built.models):
                trainers.setdefault(number, (command, built))
    return ScriptsAsked(answered, attempts)


def _answer(script: LeadingScript, built: Built, scripts: Sequence[LeadingScript], *, is_called: bool) -> Asked:
    """Return the answer of one of the scripts, which `is_called` says has called what it has built with tensors."""
    command, _is_certain, trains = script
    others = (
        each.command for each in scripts if each.trains and each.is_certain and each.command.script != command.script
    )
    if command.code and is_called:
        built = replace(built, batch=None)  # what it calls the model with counts
    shown = tuple(map(shown_as, others))
    return Asked(built, shown_as(command), shown, trains, is_example=bool(command.code), ranks=command.ranks)


def has_known_scripts(request: Request, *, cache: bool) -> bool:
    """Return True if it is kept that scripts lead to the file."""
    return cache and may_ask(request) and bool(_search(request, cache=cache).kept)


def may_ask(request: Request) -> bool:
    """Return True if scripts may say how the models of a file are built: it was named, and declares none."""
    is_python = request.path is not None and request.path.endswith(".py")
    is_plain = request.named and request.script is None and not request.call and "." not in request.qualname
    return request.settings.ask_scripts and is_python and is_plain and not is_declared(request)


def _scripts(request: Request, *, cache: bool) -> tuple[LeadingScript, ...]:
    return _search(request, cache=cache).commands


def _search(request: Request, *, cache: bool) -> LeadingScripts:
    return LeadingScripts(Path(request.path or ""), Path(request.root), keep=cache)


def _told(
    requests: Sequence[Request],
    asking: dict[int, TypedCommand],
    on_wait: Callable[[str, float], None],
    *,
    cache: bool,
) -> Iterator[tuple[int, Built]]:
    """Run one script for each request, and yield the numbers of requests with what was built."""
    from memlint.worker.parallel import answers_to  # noqa: PLC0415

    numbers = list(asking)
    tasks = [_task(requests[number], asking[number], cache=cache) for number in numbers]
    for place, answer in answers_to(tasks, on_wait=lambda task, seconds: on_wait(task.request.target, seconds)):
        if isinstance(answer.result, _Told):
            yield numbers[place], answer.result.built


def _task(request: Request, command: TypedCommand, *, cache: bool) -> Task:
    asked = request_of(command, request, builds_only=True)
    limits = Limits(seconds=min(_SECONDS * slowness(), request.settings.timeout), nbytes=request.settings.memory_limit)
    return Task(asked, limits, _ask, cache)


def request_of(command: TypedCommand, request: Request, *, name: str = "", builds_only: bool = False) -> Request:
    """Return the Request that runs a command with made-up data under the settings of another one.

    `name` is that of the Workload, in place of the script's; `builds_only` is as for a Script.
    """
    precision = (("ACCELERATE_MIXED_PRECISION", command.precision),) if command.precision else ()
    script = Script(
        name=name or command.name or command.script.stem,
        path="" if command.module else str(command.script),
        module=command.module,
        code=command.code,
        arguments=concrete(command.arguments),
        folder=str(command.folder),
        typed=(command.name, *concrete(command.arguments)) if command.name else (),
        ranks=command.ranks or None,
        variables=(*command.variables, *precision),
        fake_data=True,
        config_of=request.settings.config_of,
        steps=1 if builds_only else 2,
        builds_only=builds_only,
    )
    return Request(
        target=f"{request.path}::{name}" if name else shown_as(command), path=script.path or None,
        module=script.module, root=request.root, settings=request.settings, script=script,
    )  # fmt: skip


def slowness() -> float:
    """Return by how much longer a script takes here than alone: the machine's load, up to a factor."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 1.0
    return min(max(load / (os.cpu_count() or 1), 1.0), _MOST_SLOWNESS)


def _ask(session: Session) -> _Told:
    """Ask for what a script builds, and calls; again with each change that packages need before it, for some time.

    What it built before counts for more than a change after which it builds nothing; how it ends then counts anyhow.
    """
    told: Built | None = None
    end = time.monotonic() + _ALL_SECONDS * slowness()
    while True:
        built, script = session.ask(TellBuilt()).as_(WhatWasBuilt).built, session.request.script
        told = built if told is None or built.models or not told.models else replace(told, ending=built.ending)
        amendment = built.ending.amendment
        if script is None or amendment is None or amendment in script.amendments or time.monotonic() > end:
            return _Told(built=told)
        session.begin_again(session.request.model_copy(update={"script": script.amended(amendment)}))


def classes_of(request: Request, built: Built) -> Sequence[tuple[BuiltModel, BuiltClass]]:
    """Return the classes of the requested file that were built, or the one that is asked for, each with its model."""
    return built.classes_of(request.path or "", request.qualname)

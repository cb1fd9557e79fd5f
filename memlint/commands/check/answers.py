"""Third stage of `memlint check`: Workloads and findings from the answers of workers, which alone run user code."""

import importlib.util
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from memlint.base.errors import MemlintError, TargetError
from memlint.base.version import install_command
from memlint.capture.capture import Capture
from memlint.capture.files import is_capture
from memlint.commands.analyse.analyse import analyse, look_at_file
from memlint.commands.analyse.look import Look
from memlint.commands.asking import Attempt, ScriptsAsked, slowness, with_scripts_asked
from memlint.commands.check.source_findings import ChosenRules
from memlint.commands.check.targets import CheckOptions, failure
from memlint.commands.parts import OnPart, Part, Phase, nobody
from memlint.commands.scripts_run import with_scripts_run
from memlint.lint.diagnostics import BrokenRule
from memlint.lint.suppression import unsuppressed
from memlint.report.escaping import visible
from memlint.report.model import Finding, Skipped, Workload
from memlint.report.workloads import moved
from memlint.worker.protocol import Answer, Request, Result
from memlint.worker.session import Session
from memlint.worker.task import Task

_INSTALL = f"Install it with: {install_command('torch')}"
_PATIENCE_FOR_PLANS = 5
"""A plan traces many programs: it may take this many times the time limit."""


class Output(NamedTuple):
    """The output that the code of a target wrote."""

    target: str
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers together; empty without torch, or if no code may run."""

    executed: bool
    """True if Workloads could be run."""
    torch: str | None
    workloads: tuple[Workload, ...]
    """The failures of earlier stages first."""
    traced: tuple[Finding, ...]
    """Everything that rules of traced steps found, suppressed or not."""
    findings: tuple[Finding, ...]
    """Those that comments and `per-file-ignores` do not suppress."""
    traced_lines: Mapping[str, frozenset[int]]
    """By absolute path: the lines those rules have seen at work."""
    empty: tuple[tuple[Request, list[Skipped]], ...]
    """Files that were named and gave no Workload, with what was left out of each."""
    skipped: tuple[Skipped, ...]
    declarations: tuple[str, ...]
    """With `init`: what to add to the configuration."""
    outputs: tuple[Output, ...]
    """One for each target whose code ran."""
    attempts: Mapping[str, Sequence[Attempt]] = field(default_factory=dict)
    """By absolute path: the scripts that were asked how they build the models of the file."""


def answers_of_workers(
    chosen: Sequence[ChosenRules],
    failures: Iterable[Workload],
    options: CheckOptions,
    on_wait: Callable[[str, float], None],
    on_part: OnPart = nobody,
    early: Session | None = None,
) -> Answers:
    """Have every Request answered whose target is not among `failures`, by a worker or from the cache.

    `on_part` is called with what will stand in the Report as it is; an only Request may have a child already, `early`.
    """
    workloads = list(failures)
    failed = {workload.target for workload in workloads}
    all_requests = [(request, rules) for rules in chosen for request in rules.target.requests]
    requests = [(request, rules) for request, rules in all_requests if not _is_file(request)]
    skipped: list[Skipped] = []
    executed = options.execute and importlib.util.find_spec("torch") is not None
    if not options.execute and requests:
        skipped.append(Skipped(reason="no model was built, because of --no-exec"))
    elif options.execute and not executed:
        by_name = [r for r, _ in requests if r.qualname or r.script or not (r.path or "").endswith(".py")]
        error = TargetError("PyTorch is not installed, so no model can be built", _INSTALL)
        workloads += [failure(request.target, error) for request in by_name]
        if len(requests) > len(by_name):
            reason = "PyTorch is not installed: only the source rules ran, no model was built"
            skipped.append(Skipped(reason=reason, hint=_INSTALL))
    requests = [(request, rules) for request, rules in requests if executed and request.target not in failed]
    workloads += [_unspeakable(request) for request, _ in requests if not request.is_utf8]
    requests = [(request, rules) for request, rules in requests if request.is_utf8]
    look = Look.model_validate(options.model_dump(include=set(Look.model_fields)))
    of_code = [request for request, _ in requests]
    shown = _shown(requests, workloads, on_part)
    own, answers, attempts = _with_scripts(of_code, look, on_wait, shown, early, cache=options.cache)
    of_files = [(request, rules) for request, rules in all_requests if _is_file(request)]
    requests += of_files
    own += [request for request, _ in of_files]
    answers += [_looked_at(request, look) for request, _ in of_files]
    left = [
        (each, rules) for (_, rules), r, answer in zip(requests, own, answers, strict=True) for each in _left(r, answer)
    ]
    requests += left
    own += [request for request, _ in left]
    answers += _answers([request for request, _ in left], look, on_wait, nobody, None, cache=options.cache)
    torch = None
    traced, findings = list[Finding](), list[Finding]()
    traced_lines: defaultdict[str, set[int]] = defaultdict(set)
    empty, declarations = [], []
    for (request, rules), answer in zip(requests, answers, strict=True):
        result = _result_of(answer)
        torch = result.torch or torch
        here = [moved(finding, len(workloads)) for finding in result.findings]
        traced += here
        findings += rules.unignored(unsuppressed(here))
        workloads += result.workloads if answer.error is None else _failed(request, answer.error, answer)
        for path, lines in result.traced_lines.items():
            traced_lines[path].update(lines)
        declarations += result.declarations
        if request.named and not result.workloads and answer.error is None:
            empty.append((request, result.skipped))
        else:
            skipped += result.skipped
    return Answers(
        executed=executed,
        torch=torch,
        workloads=tuple(workloads),
        traced=tuple(traced),
        findings=tuple(findings),
        traced_lines={path: frozenset(lines) for path, lines in traced_lines.items()},
        empty=tuple(empty),
        skipped=tuple(skipped),
        declarations=tuple(declarations),
        attempts={own[number].path or "": each for number, each in attempts.items()},
        outputs=tuple(Output(r.target, answer.stdout, answer.stderr) for r, answer in zip(own, answers, strict=True)),
    )


def _with_scripts(
    requests: Sequence[Request],
    look: Look,
    on_wait: Callable[[str, float], None],
    on_part: OnPart,
    early: Session | None,
    *,
    cache: bool,
) -> tuple[list[Request], list[Answer], Mapping[int, Sequence[Attempt]]]:
    """Have the project's scripts say how they build the models, and run where nothing else gives an Estimate.

    Return the Requests with that, the Answers, and by number of the Request the scripts that were asked.
    """
    begin = time.monotonic()
    asked = ScriptsAsked(list(requests), {})
    if not look.init:  # a declaration has the project's own expressions, not the objects that a script made of them
        on_part(Phase("looking for scripts that build its models"))
        asked = with_scripts_asked(asked.requests, on_wait, cache=cache)

    def show(part: Part) -> None:
        on_part(asked.noted(part) if isinstance(part, Workload) else part)

    answers = [
        replace(
            each, result=each.result.model_copy(update={"workloads": list(map(asked.noted, each.result.workloads))})
        )
        if isinstance(each.result, Result)
        else each
        for each in _answers(asked.requests, look, on_wait, show, early, cache=cache)
    ]
    most = max((request.settings.timeout for request in requests), default=0.0)
    seconds = most * slowness() - (time.monotonic() - begin)
    return asked.requests, *with_scripts_run(asked, answers, look, on_wait, seconds, cache=cache)


def _shown(requests: Sequence[tuple[Request, ChosenRules]], failures: Sequence[Workload], on_part: OnPart) -> OnPart:
    """Pass on the parts that no later stage changes: of findings those in the only target."""
    only = requests[0][1] if len(requests) == 1 and not failures else None

    def pass_on(part: Part) -> None:
        match part:
            case Workload(error=None) | Phase() | Capture():
                on_part(part)
            case Finding() if only is not None and part.confidence != "heuristic" and part.code != BrokenRule.code:
                for each in only.unignored(unsuppressed([part])):
                    on_part(each)

    return pass_on


def _is_file(request: Request) -> bool:
    """Say whether it is a Capture in a file, which needs no child."""
    return request.script is None and not request.qualname and is_capture(request.path or "")


def _looked_at(request: Request, look: Look) -> Answer:
    try:
        return Answer(look_at_file(request, look))
    except MemlintError as error:
        return Answer(error=error)


def _unspeakable(request: Request) -> Workload:
    """Give what stands for a target with such a name."""
    place = request.path or request.root
    hint = "Rename the file or folder, or write that argument in UTF-8."
    error = TargetError(f"the name {place!r} is not UTF-8", hint)
    return failure(visible(request.target), error)


def _failed(request: Request, error: MemlintError, answer: Answer) -> list[Workload]:
    """The Workload that stands for a target without an answer, or those that were seen of it before.

    Of several the ones that were done with keep their answers.
    """
    failed = failure(request.target, error, answer.traceback)
    partial = _result_of(answer).workloads
    return [
        each
        if each.estimate is not None and request.script is None
        else each.model_copy(update={"error": each.error or failed.error})
        for each in partial
    ] or [failed]


def _left(request: Request, answer: Answer) -> list[Request]:
    """Requests for the Workloads that were behind one at which the child was stopped."""
    names = _result_of(answer).left if answer.error is not None else []
    return [request.model_copy(update={"target": f"{request.target}::{name}", "qualname": name}) for name in names]


def _result_of(answer: Answer) -> Result:
    """Return the whole result, or the partial one."""
    result = answer.result or answer.partial
    return result if isinstance(result, Result) else Result()


def _answers(
    requests: Sequence[Request],
    look: Look,
    on_wait: Callable[[str, float], None],
    on_part: OnPart,
    early: Session | None,
    *,
    cache: bool,
) -> list[Answer]:
    """The Answer to each request: from what is kept, and of children, several of which may run at a time.

    An only one is followed part by part; of several each is shown when it and those before it are there.
    """
    from memlint.worker.parallel import answers_to, is_server_held  # noqa: PLC0415

    in_parts = len(requests) == 1 and not is_server_held()
    ask = partial(analyse, look=look, on_part=on_part) if in_parts else partial(analyse, look=look)
    tasks = [Task(r, r.limits(_PATIENCE_FOR_PLANS if look.plan else 1), ask, cache and not r.script) for r in requests]
    answers: dict[int, Answer | None] = dict.fromkeys(range(len(tasks)))
    waiting = deque(range(len(tasks)) if len(tasks) > 1 else ())

    def wait(task: Task, seconds: float) -> None:
        on_wait(task.request.target, seconds)

    try:
        for number, answer in answers_to(tasks, on_wait=wait, early=early):
            answers[number] = answer
            while waiting and (ready := answers[waiting[0]]) is not None:
                waiting.popleft()
                for workload in _result_of(ready).workloads if ready.error is None else ():
                    on_part(workload)
    except KeyboardInterrupt:  # scripts say what was seen until then
        if any(answer is None or answer.result is None for answer in answers.values()):
            raise
    return [answer for answer in answers.values() if answer is not None]

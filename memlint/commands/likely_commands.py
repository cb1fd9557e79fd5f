"""The command to type where a model cannot be analysed: of those that were tried the one that comes furthest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from memlint.commands.asking import Attempt
from memlint.report.model import Workload
from memlint.source.leading_scripts import likeliest_command, shown_as, typed_as
from memlint.targets.script import HAD_BUILT
from memlint.worker.protocol import Request

_LAST_RESORTS = (
    *("--init", "memlint_workload", "::build", "with -v", "This is a script", "with the sizes that you have"),
    "RANK=VALUE",
)
"""Parts of hints that ask for more than a command, or for what a launcher sets."""


def with_commands(
    workloads: Iterable[Workload],
    requests: Iterable[Request],
    attempts: Mapping[str, Sequence[Attempt]],
    *,
    cache: bool,
) -> Iterator[Workload]:
    """Yield the Workloads, and for each that has failed what to type; with `cache` the search of a project is kept.

    `attempts` has the commands that were tried, by the file that they were to build; a file without any has the one
    that most likely runs it. What the environment lacks has to be mended first; a declaration to be filled in comes
    last.
    """
    of_files = {each.path: each for each in requests if each.path and each.path.endswith(".py") and not each.script}
    for workload in workloads:
        request = of_files.get(str(Path(workload.file).resolve()))
        if workload.error is None or workload.script is not None or request is None:
            yield workload
            continue
        if tried := attempts.get(request.path or ""):
            advice = _of_furthest(tried, request)
        else:
            command = likeliest_command(Path(request.path or ""), Path(request.root), keep=cache)
            advice = f"Type {command}." if command else ""
        was_run = any(each.error and str(each.script.command.script) == request.path for each in tried or ())
        hint = workload.error.hint if not (advice and (was_run or "SCRIPT.py" in workload.error.hint)) else ""
        if not hint or any(each in hint for each in _LAST_RESORTS):
            hint = " ".join(filter(None, (advice, f"Or: {hint}" if hint and advice else hint)))
        elif advice.startswith("Type "):
            hint = f"{hint} Then, or in its place, type {advice.removeprefix('Type ')}"
        yield workload.model_copy(update={"error": workload.error.model_copy(update={"hint": hint})})


def _of_furthest(attempts: Iterable[Attempt], request: Request) -> str:
    """Return what to type of the commands that were tried, and what it lacks; empty if none of them can work."""
    examples = [each for each in attempts if each.script.command.code]
    usable = [each for each in attempts if not each.is_refused and each not in examples]
    if not usable:
        failed = [each for each in examples if each.built is not None and each.built.ending.is_failure]
        return _of_example(failed[0]) if failed else ""
    furthest = max(usable, key=lambda each: _reached(each, request))
    command = typed_as(furthest.script.command)
    if furthest.error is not None:
        message, hint = furthest.error.message.partition(HAD_BUILT)[0], furthest.error.hint
    elif furthest.built is not None and (furthest.built.ending.is_failure or furthest.built.lacks):
        ending = furthest.built.ending
        lacks = "" if ending.hint.startswith("Install ") else furthest.built.lacks  # which it names itself
        message, hint = ending.reason, " ".join(filter(None, (lacks, ending.hint)))
    else:
        return f"Type {command}."
    which = "" if str(furthest.script.command.script) == request.path else ", which comes furthest"
    return f"{hint or 'Mend what ends the script.'} Then type {command}{which}: {message}."


def _of_example(attempt: Attempt) -> str:
    """Return why an example of a document fails, behind what the environment lacks; empty if it has no answer."""
    built = attempt.built
    if built is None:
        return ""
    failure = f"{shown_as(attempt.script.command)} fails, too: {built.ending.reason}."
    return f"{built.lacks} {failure}".lstrip()


def _reached(attempt: Attempt, request: Request) -> tuple[bool, ...]:
    """Return how far a command came, in ascending order: an unanswered one is below those that have built a model.

    One that trains nothing, or may not lead to the file at all, comes less far with another model than one that ends
    before its own.
    """
    built = attempt.built
    known = built is not None and bool(built.models), built is not None
    command, is_certain, trains = attempt.script
    trains = trains and (is_certain or command.document is not None)  # of what nobody types it is only a name
    return attempt.has_built(request), trains, is_certain, *known

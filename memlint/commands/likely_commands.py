"""The command to type where a model cannot be analysed: it most likely runs the classes that the file defines."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from memlint.report.model import Workload
from memlint.source.leading_scripts import likeliest_command
from memlint.worker.protocol import Request

_LAST_RESORTS = ("--init", "memlint_workload", "::build", "with -v", "This is a script", "with the sizes that you have")
"""Parts of hints that ask for more than a command."""


def with_commands(workloads: Iterable[Workload], requests: Iterable[Request], *, cache: bool) -> Iterator[Workload]:
    """Yield the Workloads, and for each that has failed what to type; with `cache` the search of a project is kept.

    What the environment lacks has to be mended first; a declaration to be filled in comes last.
    """
    of_files = {each.path: each for each in requests if each.path and each.path.endswith(".py") and not each.script}
    for workload in workloads:
        request = of_files.get(str(Path(workload.file).resolve()))
        if workload.error is None or workload.script is not None or request is None:
            yield workload
            continue
        command = likeliest_command(Path(request.path or ""), Path(request.root), keep=cache)
        hint = workload.error.hint if not (command and "SCRIPT.py" in workload.error.hint) else ""
        if command and command not in hint:
            is_last = not hint or any(each in hint for each in _LAST_RESORTS)
            hint = " ".join(filter(None, (f"Type {command}.", f"Or: {hint}" if hint else ""))) if is_last else (
                f"{hint} Then, or in its place, type {command}."
            )  # fmt: skip
        yield workload.model_copy(update={"error": workload.error.model_copy(update={"hint": hint})})

"""`memlint diff`: from what was typed for two sides to their Comparison."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from memlint.base.errors import TargetError, UsageError
from memlint.base.version import __version__
from memlint.commands.diff.checkouts import Checkout, checkout, commit_of
from memlint.commands.diff.environment import variables
from memlint.compare.changes import compare
from memlint.report.model import Report
from memlint.report.reading import read_report
from memlint.worker.signals import terminations_raise
from memlint.workloads.find.target import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memlint.commands.diff.arguments import Arguments
    from memlint.compare.comparison import Comparison

WORKING_TREE = "the working tree"
_LAST_LINES = 20
_ERROR = re.compile(r"^error: (?P<message>.*)\n(?:  help: (?P<help>.*))?", re.MULTILINE)
"""What memlint says last where it gives up."""


@dataclass(frozen=True, slots=True)
class Side:
    """What was typed for one side."""

    text: str | None
    """A Report file, a directory or a revision; None for the working tree."""
    python: str | None = None
    """The interpreter to analyse it with; None for the one that runs."""

    @property
    def label(self) -> str:
        """What to call it."""
        return self.text or WORKING_TREE


@dataclass(frozen=True, slots=True)
class _Read:
    report: Report
    commit: str | None = None
    notes: tuple[str, ...] = ()


def diff(base: Side, head: Side, arguments: Arguments) -> Comparison:
    """Compare two sides. Those that are no Report files are analysed, with these `arguments` of `memlint check`.

    A target that only one side has is new or gone. Raises MemlintError for a side that is not there or cannot be
    analysed at all.
    """
    for side in (base, head):
        if side.text is not None and not Path(side.text).exists():
            commit_of(side.text)  # a mistake is told before anything is analysed
    sides = (base, head)
    with terminations_raise(), ExitStack() as checkouts, ThreadPoolExecutor(2) as pool, _Runs() as runs:
        places = list(pool.map(lambda side: checkouts.enter_context(_place(side)), sides))
        orders = [
            arguments.without([path for path in arguments.paths if _has(there, path) and not _has(here, path)])
            for here, there in (places, reversed(places))
        ]
        before, after = pool.map(_read, sides, places, orders, (bool(arguments.paths),) * 2, (runs,) * 2)
    comparison = compare(
        before.report,
        after.report,
        base_label=base.label,
        head_label=head.label,
        base_commit=before.commit,
        head_commit=after.commit,
    )
    return comparison.model_copy(update={"notes": [*before.notes, *after.notes, *comparison.notes]})


def _place(side: Side) -> AbstractContextManager[Checkout | None]:
    """Where the files of a side are; None for a Report."""
    if side.text is None:
        return nullcontext(Checkout(Path()))
    if Path(side.text).is_file():
        return nullcontext(None)
    if Path(side.text).is_dir():
        return nullcontext(Checkout(Path(side.text)))
    return checkout(side.text)


def _has(place: Checkout | None, target: str) -> bool:
    return place is not None and (place.directory / target.partition(SEPARATOR)[0]).exists()


def _read(side: Side, place: Checkout | None, arguments: Arguments, has_paths: bool, runs: _Runs) -> _Read:
    """The Report of a side; an empty one where it has none of the targets that were named."""
    if place is None:
        return _Read(read_report(Path(side.label)))
    if has_paths and not arguments.paths:
        return _Read(Report(tool=f"memlint {__version__}"), place.commit)
    report = _analysed(side, place, arguments.words, runs)
    return _Read(report, place.commit, (*_strayed(side, place, report), *_without_submodules(side, place)))


def _analysed(side: Side, place: Checkout, words: Sequence[str], runs: _Runs) -> Report:
    """What `memlint check` says in a process of its own."""
    python = [_program(side.python) if side.python else sys.executable, "-P"]
    with tempfile.TemporaryDirectory(prefix="memlint-diff-") as folder:
        written = Path(folder) / "report.json"
        command = [*python, "-m", "memlint", "check", "--output-format", "json", "-o", str(written), *words]
        try:
            said = runs.run(command, place.directory, variables(python, place))
        except OSError as error:
            raise UsageError(
                f"{side.python} cannot be run: {error.strerror}", "Give the python of an environment."
            ) from error
        if written.is_file():
            return read_report(written)
    raise _unanalysed(side, said)


def _program(python: str) -> str:
    """A path that holds in other directories; links stay, as an environment is where its link is."""
    return str(Path(python).absolute()) if os.sep in python else shutil.which(python) or python


def _unanalysed(side: Side, said: str) -> TargetError:
    """Why there is no Report, from what `memlint check` or Python said."""
    errors = list(_ERROR.finditer(said))
    if errors:
        return TargetError(f"{side.label} cannot be analysed: {errors[-1]['message']}", errors[-1]["help"] or "")
    lines = "\n".join(said.strip().splitlines()[-_LAST_LINES:])
    is_missing = side.python and "No module named" in lines
    return TargetError(
        f"{side.label} cannot be analysed: {lines or 'memlint check said nothing'}",
        "Is memlint installed there?" if is_missing else "Run memlint check there to see more.",
    )


class _Runs:
    """Processes that are ended when nobody waits for them any more."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
            for process in self._running:
                process.terminate()

    def run(self, command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
        """Run a command to its end; what it wrote to stderr, or else to stdout. Raises OSError."""
        with self._lock:
            if self._is_over:
                raise CancelledError
            process = subprocess.Popen(
                command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self._running.append(process)
        stdout, stderr = process.communicate()
        return stderr or stdout


def _without_submodules(side: Side, place: Checkout) -> Iterator[str]:
    """What to say where submodules of a revision are not on this machine."""
    if place.missing:
        yield (
            f"{side.label} was analysed without its submodules {', '.join(place.missing)}, whose commits are not here: "
            "run `git submodule update --init --recursive`, or `git fetch` in them"
        )


def _strayed(side: Side, place: Checkout, report: Report) -> Iterator[str]:
    """What to say where a revision's code was not all its own."""
    if place.original is None:
        return
    outside = f"{place.original}{os.sep}"
    foreign = sorted({path for path in _paths(report.model_dump()) if path.startswith(outside)})
    if foreign:
        yield (
            f"{side.label} was analysed with files of the working tree, such as {foreign[0]}, because they are "
            "installed from there: give it an environment of its own with --base-python or --head-python"
        )


def _paths(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "path" and isinstance(item, str):
                yield item
            else:
                yield from _paths(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _paths(item)

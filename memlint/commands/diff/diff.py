"""`memlint diff`: make a Comparison of two sides as the user typed them."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from memlint.base.errors import TargetError, UsageError
from memlint.base.own_process import terminations_raise
from memlint.base.version import __version__
from memlint.capture.files import is_capture
from memlint.commands.check.check import check
from memlint.commands.check.targets import CheckOptions
from memlint.commands.diff.checkouts import Checkout, checkout, commit_of, environment_of
from memlint.compare.changes import compare
from memlint.compare.comparison import Comparison
from memlint.report.model import Report
from memlint.report.reading import read_report
from memlint.targets.target import SEPARATOR

WORKING_TREE = "the working tree"
_LAST_LINES = 20
_ERROR = re.compile(r"^error: (?P<message>.*)\n(?:  help: (?P<help>.*))?", re.MULTILINE)
"""The last lines of memlint's output when it gives up, for any version of memlint in the other environment."""


@dataclass(frozen=True, slots=True)
class TypedSide:
    """One side as typed."""

    text: str | None
    """A Report file, a directory or a revision; None for the working tree."""
    python: str | None = None
    """The interpreter that analyses it; None for the running one."""

    @property
    def label(self) -> str:
        """The name of the side."""
        return self.text or WORKING_TREE


@dataclass(frozen=True, slots=True)
class CheckArguments:
    """The arguments for the runs of `memlint check`."""

    words: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """The words among them that are targets."""

    def without(self, paths: Sequence[str]) -> Self:
        """Return the same arguments without some of the targets."""
        words = list(self.words)
        for path in paths:
            del words[len(words) - 1 - words[::-1].index(path)]
        return type(self)(tuple(words), tuple(path for path in self.paths if path not in paths))


@dataclass(frozen=True, slots=True)
class _Analysed:
    report: Report
    commit: str | None = None
    notes: tuple[str, ...] = ()


def diff(base: TypedSide, head: TypedSide, arguments: CheckArguments) -> Comparison:
    """Compare two sides. Sides that are not Report files are analysed, with these `arguments` of `memlint check`.

    A target that only one side has is new or gone. Raises MemlintError for a side that does not exist or cannot be
    analysed at all.
    """
    for side in (base, head):
        if side.text is not None and not (side.text.strip() and Path(side.text).exists()):
            commit_of(side.text)  # report mistakes before any analysis
    sides = (base, head)
    with terminations_raise(), ExitStack() as checkouts, ThreadPoolExecutor(2) as pool, _Processes() as processes:
        places = list(pool.map(lambda side: checkouts.enter_context(_place(side)), sides))
        own = [
            arguments.without([path for path in arguments.paths if _has(there, path) and not _has(here, path)])
            for here, there in (places, reversed(places))
        ]
        # If a side has none of the named targets, there is nothing to analyse.
        words = [None if arguments.paths and not each.paths else each.words for each in own]
        before, after = pool.map(_analysed, sides, places, words, [processes] * 2)
    comparison = compare(
        before.report,
        after.report,
        base_label=base.label,
        head_label=head.label,
        base_commit=before.commit,
        head_commit=after.commit,
    )
    return comparison.model_copy(update={"notes": [*before.notes, *after.notes, *comparison.notes]})


def _report_of(file: Path) -> Report:
    """The Report in a file, or of the Capture or recording that it is."""
    if not is_capture(file.name):
        return read_report(file)
    report = check([str(file)], {}, CheckOptions()).report
    for workload in report.workloads:
        if workload.error is not None:
            raise TargetError(workload.error.message, workload.error.hint)
    return report


def _place(side: TypedSide) -> AbstractContextManager[Checkout | None]:
    """Return the place of the files of a side; None for a Report."""
    path = Path(side.text or "")
    if path.is_dir():
        return nullcontext(Checkout(path))
    return nullcontext(None) if path.is_file() else checkout(str(side.text))


def _has(place: Checkout | None, target: str) -> bool:
    return place is not None and (place.directory / target.partition(SEPARATOR)[0]).exists()


def _analysed(
    side: TypedSide, place: Checkout | None, words: Sequence[str] | None, processes: "_Processes"
) -> _Analysed:
    """Return the Report of a side: the named file, or else the output of `memlint check` in a process of its own."""
    if place is None:
        return _Analysed(_report_of(Path(side.label)))
    if words is None:
        return _Analysed(Report(tool=f"memlint {__version__}"), place.commit)
    program = side.python or sys.executable
    # Make the path valid in other directories; keep links, which locate virtual environments.
    python = [str(Path(program).absolute()) if os.sep in program else shutil.which(program) or program, "-P"]
    with tempfile.TemporaryDirectory(prefix="memlint-diff-") as folder:
        file = Path(folder) / "report.json"
        command = [*python, "-m", "memlint", "check", "--output-format", "json", "-o", str(file), *words]
        try:
            output = processes.run(command, place.directory, environment_of(python, place))
        except OSError as error:
            raise UsageError(
                f"{side.python} cannot be run: {error.strerror}", "Give the python of an environment."
            ) from error
        if not file.is_file():
            raise _no_report(side, output)
        report = read_report(file)
    return _Analysed(report, place.commit, (*_strayed(side, place, report), *_without_submodules(side, place)))


def _no_report(side: TypedSide, output: str) -> TargetError:
    """Make the error for a missing Report from the output of `memlint check` or Python."""
    errors = list(_ERROR.finditer(output))
    if errors:
        return TargetError(f"{side.label} cannot be analysed: {errors[-1]['message']}", errors[-1]["help"] or "")
    lines = "\n".join(output.strip().splitlines()[-_LAST_LINES:])
    is_missing = side.python and "No module named" in lines
    return TargetError(
        f"{side.label} cannot be analysed: {lines or 'memlint check printed nothing'}",
        "Is memlint installed there?" if is_missing else "Run memlint check there to see more.",
    )


class _Processes:
    """Processes that are terminated when nobody waits for them any more."""

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
        """Run a command to its end and return its stderr, or else its stdout. Raises OSError."""
        with self._lock:
            if self._is_over:
                raise CancelledError
            process = subprocess.Popen(
                command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self._running.append(process)
        stdout, stderr = process.communicate()
        return stderr or stdout


def _without_submodules(side: TypedSide, place: Checkout) -> Iterator[str]:
    """Yield warnings about submodules of a revision that are not on this machine."""
    if place.missing:
        yield (
            f"{side.label} was analysed without its submodules {', '.join(place.missing)}, whose commits are not here: "
            "run `git submodule update --init --recursive`, or `git fetch` in them"
        )


def _strayed(side: TypedSide, place: Checkout, report: Report) -> Iterator[str]:
    """Yield warnings about imported code from outside the revision."""
    outside = f"{place.original}{os.sep}"
    foreign = [path for path in _paths(report.model_dump()) if path.startswith(outside)]
    if place.original is not None and foreign:
        yield (
            f"{side.label} was analysed with files of the working tree, such as {min(foreign)}, because they are "
            "installed from there: give it an environment of its own with --base-python or --head-python"
        )


def _paths(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(path := value.get("path"), str):
            yield path
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _paths(item)

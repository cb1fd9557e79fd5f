"""`memlint diff`: from what was typed for two sides to their Comparison."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlint.compare.checkouts import Checkout, checkout, commit_of
from memlint.compare.compare import compare
from memlint.errors import TargetError, UsageError
from memlint.report.reading import read_report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memlint.compare.model import Comparison
    from memlint.report.model import Report

WORKING_TREE = "the working tree"
_OURS = (
    "-o",
    "--output-file",
    "--output-format",
    "--exit-zero",
    "--init",
    "--add-ignore",
    "--write-baseline",
    "--fix",
    "--diff",
)
"""Options of check that memlint diff gives itself, or that would change files."""
_LAST_LINES = 20


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
    note: str = ""


def diff(base: Side, head: Side, arguments: Sequence[str] = ()) -> Comparison:
    """Compare two sides. Those that are no Report files are analysed, with these `arguments` of `memlint check`.

    Raises MemlintError for a side that is not there or cannot be analysed at all.
    """
    for argument in arguments:
        if argument.partition("=")[0] in _OURS:
            raise UsageError(f"{argument} cannot be given to the two runs of memlint check", "Leave it out.")
    for side in (base, head):
        if side.text is not None and not Path(side.text).exists():
            commit_of(side.text)  # a mistake is told before anything is analysed
    with ThreadPoolExecutor(2) as pool:
        before, after = pool.map(lambda side: _read(side, arguments), (base, head))
    comparison = compare(
        before.report,
        after.report,
        base_label=base.label,
        head_label=head.label,
        base_commit=before.commit,
        head_commit=after.commit,
    )
    notes = [note for note in (before.note, after.note) if note]
    return comparison.model_copy(update={"notes": [*notes, *comparison.notes]})


def _read(side: Side, arguments: Sequence[str]) -> _Read:
    file = Path(side.label)
    if side.text is not None and file.is_file():
        return _Read(read_report(file))
    with _place(side) as place:
        report = _analysed(side, place, arguments)
        return _Read(report, place.commit, _strayed(side, place, report))


def _place(side: Side) -> AbstractContextManager[Checkout]:
    if side.text is None:
        return nullcontext(Checkout(Path()))
    if Path(side.text).is_dir():
        return nullcontext(Checkout(Path(side.text)))
    return checkout(side.text)


def _analysed(side: Side, place: Checkout, arguments: Sequence[str]) -> Report:
    """What `memlint check` says in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="memlint-diff-") as folder:
        written = Path(folder) / "report.json"
        command = [side.python or sys.executable, "-P", "-m", "memlint", "check", "--output-format", "json"]
        try:
            done = subprocess.run(
                [*command, "-o", str(written), *arguments],
                cwd=place.directory,
                env=_environment(place),
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            raise UsageError(
                f"{side.python} cannot be run: {error.strerror}", "Give the python of an environment."
            ) from error
        if written.is_file():
            return read_report(written)
    said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-_LAST_LINES:])
    hint = (
        "Is memlint installed there?"
        if side.python and "No module named" in said
        else "Run memlint check there to see more."
    )
    raise TargetError(f"{side.label} cannot be analysed: {said.removeprefix('error: ')}", hint)


def _environment(place: Checkout) -> dict[str, str]:
    """The variables of a run: what a revision has below `src` goes before what is installed from the working tree.

    Other folders with code memlint's workers put first themselves.
    """
    sources = place.directory / "src"
    if place.original is None or not sources.is_dir():
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(sources), os.environ.get("PYTHONPATH"))))}


def _strayed(side: Side, place: Checkout, report: Report) -> str:
    """What to say where a revision's code was not all its own."""
    if place.original is None:
        return ""
    outside = f"{place.original}{os.sep}"
    foreign = sorted({path for path in _paths(report.model_dump()) if path.startswith(outside)})
    if not foreign:
        return ""
    return (
        f"{side.label} was analysed with files of the working tree, such as {foreign[0]}, because they are installed "
        "from there: give it an environment of its own with --base-python or --head-python"
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

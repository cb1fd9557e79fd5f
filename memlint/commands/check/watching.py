"""`memlint check --watch`: the same again whenever a file of the project changes, and what that changed in one line."""

import linecache
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from memlint.base.errors import MemlintError
from memlint.commands.check.check import Checked, check
from memlint.commands.check.targets import CheckOptions
from memlint.compare.changes import compare
from memlint.compare.headline import headline
from memlint.config import CONFIGURATIONS, find_settings
from memlint.report.model import Report
from memlint.source.files import python_files
from memlint.targets.target import SEPARATOR
from memlint.worker.parallel import server_held

_INTERVAL = 0.5
"""Seconds between two looks at the files."""


class Seen(NamedTuple):
    """One run."""

    checked: Checked
    difference: str
    """The files that have changed, and what changed in the Report; empty for the first run."""


def watch(
    arguments: Sequence[str],
    settings: Mapping[str, object],
    options: CheckOptions,
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Seen]:
    """Check now, and again after each change of a Python file or configuration of the projects, for ever.

    One process that has imported PyTorch is kept. `pause` waits between two looks at the files. Raises MemlintError for
    arguments and configuration that make no sense in the first run; in later ones that is a difference too.
    """
    with server_held():
        places = _places(arguments)
        before = _files(places)
        checked = check(arguments, settings, options, on_wait)
        yield Seen(checked, "")
        while True:
            pause(_INTERVAL)
            now = _files(places)
            changed = sorted(file for file in before.keys() | now.keys() if before.get(file) != now.get(file))
            if not changed:
                continue
            before = now
            linecache.checkcache()
            try:
                again = check(arguments, settings, options, on_wait)
            except MemlintError as error:
                yield Seen(checked, f"{_names(changed)}: {error.message}")
                continue
            yield Seen(again, f"{_names(changed)}: {_difference(checked.report, again.report)}")
            checked = again


def _difference(base: Report, head: Report) -> str:
    comparison = compare(base, head)
    fixed = len(comparison.findings_fixed) + sum(len(change.findings_fixed) for change in comparison.workloads)
    error = next((workload.error.message for workload in head.workloads if workload.error is not None), "")
    gone = f"{fixed} fixed" if fixed else ""
    return ", ".join(filter(None, (headline(comparison), gone))) + (f": {error}" if error else "")


def _names(changed: Sequence[str]) -> str:
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"{os.path.relpath(changed[0])}{more}"


def _places(arguments: Sequence[str]) -> list[Path]:
    """Give the folders of the projects that the arguments belong to, and the files among the arguments."""
    places = [Path(argument.partition(SEPARATOR)[0]).absolute() for argument in arguments]
    folders = {place if place.is_dir() else place.parent for place in places}
    roots = {find_settings(folder)[1] for folder in folders if folder.is_dir()} or {Path.cwd()}
    configurations = [root / name for root in roots for name in CONFIGURATIONS]
    return [*sorted(roots), *configurations, *(place for place in places if not place.is_dir())]


def _files(places: Sequence[Path]) -> dict[str, tuple[int, int]]:
    """Give time and size of the files there, by path."""
    files = {}
    for file in python_files(places):
        try:
            status = file.stat()
        except OSError:  # it is gone
            continue
        files[str(file)] = status.st_mtime_ns, status.st_size
    return files

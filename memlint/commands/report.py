"""`memlint report`: makes one Report of the command's arguments."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memlint.base.errors import UsageError
from memlint.capture.files import is_capture
from memlint.commands.check import check as checking
from memlint.commands.check.targets import CheckOptions
from memlint.report.model import Report
from memlint.report.reading import MOST_NBYTES, parse_report, read_report
from memlint.report.workloads import merged
from memlint.targets.target import SEPARATOR

STDIN = "-"
_NO_NAME = "memlint"


@dataclass(frozen=True, slots=True)
class Gathered:
    """The Report of all sources."""

    report: Report
    has_failed: bool
    """True if a target that was analysed now has an error; errors in Reports that were read do not count."""


def gather(
    sources: Sequence[str],
    settings: Mapping[str, object],
    options: CheckOptions,
    stdin: Callable[[int], bytes],
    on_wait: Callable[[str, float], None],
) -> Gathered:
    """Read the Reports among `sources`, analyse the targets, and put all of it into one Report.

    `settings`, `options` and `on_wait` are those of `memlint check` for the targets; `stdin` reads so many bytes where
    a source is `-`. Raises MemlintError for a source that cannot be read or found, and for settings where there is no
    target.
    """
    sources = tuple(dict.fromkeys(sources))
    targets = [source for source in sources if not _is_report(source)]
    changed = [name for name, value in settings.items() if value not in (None, ())]
    if changed and not targets:
        option = {"dimensions": "dim"}.get(changed[0], changed[0].replace("_", "-"))
        raise UsageError(
            f"--{option} changes nothing in a report that is written already",
            f"Give the target itself to memlint report, or --{option} to memlint check.",
        )
    reports = []
    has_failed = False
    for source in sources:
        if source == STDIN:
            reports.append(parse_report(stdin(MOST_NBYTES + 1), "what came from stdin"))
        elif source not in targets:
            reports.append(read_report(Path(source)))
        elif source == targets[0]:
            report = checking.check(targets, settings, options, on_wait).report
            has_failed = any(workload.error is not None for workload in report.workloads)
            reports.append(report)
    return Gathered(merged(reports), has_failed)


def file_name(sources: Sequence[str], suffix: str) -> str:
    """The name of a file made of `sources`: `gpt2.html` of `models/gpt2.py::GPT2`, `memlint.html` of several."""
    if len(set(sources)) > 1 or sources[0] == STDIN:
        return _NO_NAME + suffix
    place, _, name = sources[0].partition(SEPARATOR)
    path = Path(place)
    if not path.exists():  # an installed module
        return (name or place).rpartition(".")[2] + suffix
    if path.name == "config.json" or path.is_dir():
        folder = path if path.is_dir() else path.parent
        return (folder.resolve().name or _NO_NAME) + suffix
    return path.stem + suffix


def _is_report(source: str) -> bool:
    """Say whether it is no target: stdin, or a file other than Python's and a model's config.

    The name decides what may be run, not what somebody else has written into the file: a config is called so.
    """
    path = Path(source)
    if source == STDIN or not path.is_file() or path.suffix == ".py" or is_capture(path.name):
        return source == STDIN
    if not path.name.endswith("config.json"):
        return True
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(MOST_NBYTES))
    except (OSError, ValueError, RecursionError):
        return path.name != "config.json"
    return not isinstance(document, dict) or "workloads" in document or "tool" in document

"""The process that traces for a language server: it checks files again and again, and keeps PyTorch imported.

Orders and answers are lines of JSON, on stdin and stdout. Each order is answered with one or more Progress, and at last
with one Done. From the first Progress on SIGINT ends what runs; then that is Done without a Report.
"""

import json
import linecache
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from memlint.base.errors import MemlintError
from memlint.base.own_process import die_with
from memlint.base.version import __version__
from memlint.commands.affected import resolve_affected
from memlint.commands.check.check import Checked, check_resolved
from memlint.commands.check.targets import CheckOptions, CheckTargets
from memlint.commands.targets import Targets, distinct, of_scripts, resolve, together
from memlint.config import find_settings, override
from memlint.lint.rule import LIBRARIES
from memlint.report.model import Record, Report
from memlint.source.files import Unreadable, read_bytes
from memlint.targets.script import Script
from memlint.worker.parallel import server_held


class Order(Record):
    """The files to check."""

    directory: str
    """The folder that paths in the Report are relative to."""
    targets: tuple[str, ...] = ()
    """Files, and what else can be typed after `memlint check`, as absolute paths."""
    scripts: tuple[str, ...] = ()
    """Scripts to run a few steps of, as absolute paths."""
    settings: dict[str, Any] = {}  # noqa: RUF012 -- a Record copies defaults
    """As the command line would give them."""
    init: bool = False
    """True if declarations are wanted."""


class Progress(Record):
    """The target that has run longest, and its seconds; no target when the order has begun."""

    target: str
    seconds: float


class Done(Record):
    """The Report, or why there is none; neither if it was stopped."""

    report: Report | None = None
    declarations: tuple[str, ...] = ()
    error: tuple[str, str] | None = None
    """Message and hint."""


def main(parent: int) -> None:
    """Serve the orders on stdin, until it ends."""
    die_with(parent, gently=True)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what rules print is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with server_held():
        for line in sys.stdin:
            order = Order.model_validate_json(line)
            _say(answers, _done(order, lambda target, seconds: _say(answers, Progress(target=target, seconds=seconds))))


def _say(answers: IO[str], message: Progress | Done) -> None:
    answers.write(json.dumps({type(message).__name__: message.model_dump(mode="json")}) + "\n")
    answers.flush()


def _done(order: Order, on_wait: Callable[[str, float], None]) -> Done:
    linecache.checkcache()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            on_wait("", 0.0)  # from now on it can be stopped
            checked = _checked(order, on_wait)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        return Done()
    except MemlintError as error:
        return Done(error=(error.message, error.hint or ""))
    return Done(report=checked.report, declarations=checked.declarations)


def _checked(order: Order, on_wait: Callable[[str, float], None]) -> Checked:
    os.chdir(order.directory)
    options = CheckOptions(sweep=not order.init, timeline=not order.init, init=order.init)
    resolved = _resolved(order, order.settings)
    if not resolved:  # no models, and no workload that a file is a part of
        return Checked(Report(tool=f"memlint {__version__}"))
    return check_resolved(CheckTargets(resolved, (), ()), order.targets, options, on_wait)


def _resolved(order: Order, settings: Mapping[str, object]) -> tuple[Targets, ...]:
    """Resolve the targets, and the Workloads of the project that their files are a part of."""
    concerned = [target for target in order.targets if not Path(target).is_file() or uses_pytorch(Path(target))]
    resolved = [resolve(target, settings, force_exclude=True) for target in concerned]
    files = [target for target in order.targets if Path(target).is_file()]
    if files and not order.init:
        resolved += resolve_affected(files, settings, force_exclude=True)
    resolved += [_of_script(script, settings) for script in order.scripts]
    return tuple(together(distinct(resolved)))


def uses_pytorch(file: Path) -> bool:
    """Say whether a file names PyTorch, or a library above it: the code of any other is not run."""
    try:
        content = read_bytes(str(file)).lower()
    except Unreadable:  # which a finding says
        return False
    return any(library.encode() in content for library in LIBRARIES)


def _of_script(path: str, settings: Mapping[str, object]) -> Targets:
    found, root = find_settings(Path(path).parent)
    script = Script(name=Path(path).stem, path=path)
    return of_scripts([script], override(found, **settings), root, (Path(path),))


if __name__ == "__main__":
    main(int(sys.argv[1]))

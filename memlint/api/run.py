"""`memlint.run`: a training script, run for a few steps in a child process."""

import shlex
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from memlint.api.result import Result
from memlint.base.errors import TargetError
from memlint.commands.check.targets import CheckOptions
from memlint.commands.run.run import run as run_command
from memlint.commands.run.run import started_by
from memlint.report.model import Report
from memlint.targets.script import Script


def run(
    command: str | PathLike[str] | Sequence[str], script_options: Mapping[str, Any], options: Mapping[str, Any]
) -> Result:
    """Run it as `memlint run` does; the rest is as in `memlint.run`."""
    words = (
        shlex.split(command) if isinstance(command, str) else [command] if isinstance(command, PathLike) else command
    )
    words = [str(word) for word in words]
    is_module = words[:1] == ["-m"]
    if len(words) <= is_module:
        raise TargetError("no script is named", 'Give what Python would run: memlint.run("train.py --epochs 1").')
    chosen = {name: value for name, value in script_options.items() if value is not None}
    script = Script(**{**started_by(words[is_module:], is_module=is_module), **chosen})
    given = {name: value for name, value in options.items() if value is not None}

    def analysed(gpu: str | None) -> Report:
        settings = given if gpu is None else {**given, "gpu": gpu}
        return run_command(script, settings, CheckOptions(timeline=True, cache=False)).report

    return Result(analysed(None), analysed)

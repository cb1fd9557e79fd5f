"""Scripts written by tests, run as `memlint run` does."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlint.commands.check.targets import CheckOptions
from memlint.commands.run.run import run
from memlint.targets.script import Script

if TYPE_CHECKING:
    from memlint.commands.check.check import Checked

OPTIONS = CheckOptions(cache=False)


def write(folder: Path, text: str, name: str = "train.py") -> Path:
    """A script in a project of its own."""
    (folder / "memlint.toml").touch()
    file = folder / name
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return file


def run_script(file: Path, *arguments: str, settings: dict[str, Any] | None = None, **fields: Any) -> Checked:
    """What `memlint run FILE ARGUMENTS` makes of it; `fields` are those of its Script."""
    script = Script(name=file.stem, path=str(file), arguments=arguments, **fields)
    return run(script, {"select": ("MEM010",), **(settings or {})}, OPTIONS)


def run_text(folder: Path, text: str, *arguments: str, **fields: Any) -> Checked:
    """The same of a script with this text."""
    return run_script(write(folder, text), *arguments, **fields)


def stdout_of(checked: Checked) -> str:
    """What the script printed."""
    sys.stderr.write(checked.outputs[0].stderr)
    return checked.outputs[0].stdout

"""Commands that packages install, such as ultralytics' `yolo`: files of Python beside the interpreter."""

import shutil
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

_GROUP = "console_scripts"


def console_script(name: str) -> Path | None:
    """Return the file of the command that a package of this environment installs; None if there is none."""
    if not _modules(name):
        return None
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    return Path(found) if found else None


def package_of(file: Path) -> str:
    """Return the package whose command a file is; empty if it is a script like any other."""
    modules = _modules(file.name) if not file.suffix and file == console_script(file.name) else []
    return modules[0].partition(".")[0] if modules else ""


def folder_of_package(name: str, folders: Iterable[Path]) -> Path | None:
    """Return the first of `folders` that has this package, with Python files in it, or this module."""
    return next((each for each in folders if (each / f"{name}.py").is_file() or any((each / name).glob("*.py"))), None)


def _modules(name: str) -> list[str]:
    """Return the modules of the functions that a command runs: one, unless several packages install it."""
    return [each.module for each in entry_points(group=_GROUP, name=name)]

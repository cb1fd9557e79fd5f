"""Commands of packages, such as ultralytics' `yolo`: functions that a project declares, or an installed one has.

Source of the forms in which they are declared: the Python Packaging User Guide, "Entry points specification".
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

_GROUP = "console_scripts"
_SECTIONS = (("project", "scripts"), ("tool", "poetry", "scripts"))
_DECLARED = re.compile(r"(?:^[ \t]*|[\"'])([\w.-]+)[ \t]*=[ \t]*([\w.]+:[\w.]+)\b", re.MULTILINE)
"""Pattern of a command in a setup.cfg, or in a text of a setup.py."""


def function_of(name: str, root: Path) -> str:
    """Return the function that a command calls, as `package.module:function`; empty if there is no such command.

    That is one of an installed package, or one that the project at `root` declares, as if it was installed.
    """
    installed = next((each.value for each in entry_points(group=_GROUP, name=name)), "")
    return installed.partition("[")[0].strip() or declared_in(root).get(name, "")


def declared_in(root: Path) -> Mapping[str, str]:
    """Return the commands that the project at `root` declares, each with its function as `package.module:function`."""
    found: dict[str, str] = {}
    with suppress(OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        for section in _SECTIONS:
            table: object = project
            for key in section:
                table = table.get(key) if isinstance(table, dict) else None
            found |= {k: v for k, v in table.items() if isinstance(v, str)} if isinstance(table, dict) else {}
    for name in ("setup.cfg", "setup.py"):
        with suppress(OSError, UnicodeDecodeError):
            text = (root / name).read_text(encoding="utf-8")
            found |= dict(_DECLARED.findall(text)) if _GROUP in text else {}
    return found


def folder_of_package(name: str, folders: Iterable[Path]) -> Path | None:
    """Return the first of `folders` that has this package, with Python files in it or its folders, or this module."""
    patterns = (f"{name}.py", f"{name}/*.py", f"{name}/*/*.py")
    return next((each for each in folders if any(any(each.glob(pattern)) for pattern in patterns)), None)

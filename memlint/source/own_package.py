"""Finds the package that a project is: installed as `pip install -e .` does, it takes the place of another of its name.

A fork of a library, such as of diffusers in `src/diffusers`, is such a project.
"""

import importlib.util
import re
from contextlib import suppress
from pathlib import Path

_DECLARING = ("pyproject.toml", "setup.cfg", "setup.py")
_NAME = re.compile(r"^\s*name\s*=\s*[\"']?([\w.-]+)", re.MULTILINE)


def folder_of_own_package(root: Path) -> Path | None:
    """Return the folder with the package that the project at `root` declares by its name.

    None if it declares none, or no other package of that name is there.
    """
    for file in _DECLARING:
        with suppress(OSError, UnicodeDecodeError):
            declared = _NAME.search((root / file).read_text(encoding="utf-8"))
            package = declared[1].replace("-", "_") if declared is not None else ""
            folders = (root / "src", root) if package else ()
            found = next((each for each in folders if (each / package / "__init__.py").is_file()), None)
            if found is not None and importlib.util.find_spec(package) is not None:
                return found
    return None

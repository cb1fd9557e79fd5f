"""The owner of a file: Python, an installed package, memlint or the user.

Every check reads the text of an absolute path only, because it runs for every frame of a stack and every file that is
opened. The folders of Python and memlint are known both as they are named and with links followed.
"""

import os
import re
import sysconfig
import tempfile
from pathlib import Path

from memlint.base.temporary import SCRATCH_TEMPORARY

_HERE = Path(__file__).parents[2]
_ENGINE = (_HERE / "memlint", *_HERE.glob("memlint_libraries"), *_HERE.glob("libraries/memlint_libraries"))
OURS = (*_ENGINE, *_HERE.glob("memlint_rules"), *_HERE.glob("rules/memlint_rules"))
"""Folders of memlint itself, of its stand-ins and of the built-in rules, installed or in a checkout."""


def _prefixes(*folders: str | Path) -> tuple[str, ...]:
    return tuple({place + os.sep for folder in folders for place in (str(folder), os.path.realpath(folder))})


def file_of(module: object) -> str:
    """Return the file of a loaded module, empty for one without; a module that is loaded lazily stays as it is."""
    return getattr(module, "__dict__", {}).get("__file__") or ""


_MEMLINT, _MEMLINT_AND_RULES = _prefixes(*_ENGINE), _prefixes(*OURS)
_STANDARD_LIBRARY = _prefixes(sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
_PACKAGES = re.compile(r"(?:^|[/\\])(?:site|dist)-packages[/\\]")
_programs: tuple[str, ...] = ()
"""Folders of installed packages that are run as a program: `python -m whisper`."""


def _temporary_folders() -> str:
    """Return a pattern of the folders for temporary files: the system's, if there is one, and the scratch folder."""
    asked = tempfile.tempdir
    scratch = rf".*[/\\]{re.escape(SCRATCH_TEMPORARY)}"
    try:
        return rf"{re.escape(tempfile.gettempdir())}|{scratch}"
    except FileNotFoundError:
        return scratch
    finally:
        tempfile.tempdir = asked  # the program may ask itself, and gets an answer that depends on the environment


_GENERATED = re.compile(rf"(?:{_temporary_folders()})[/\\][^/\\.]+\.[^/\\]+\.py$")
"""Path of a file that a package writes and imports, as PyTorch Geometric does for each of its layers: its name has dots
inside, so that nobody else can import it."""


def count_as_memlint(file: str) -> str:
    """Let a module be memlint's, as it simulates what the program calls; give how the paths of its files begin.

    `file` is that of the module; of a package, `__init__.py`, all files are meant.
    """
    global _MEMLINT  # noqa: PLW0603 -- of the process, which runs the program
    beginning = file.removesuffix("__init__.py")
    _MEMLINT = (*_MEMLINT, beginning, os.path.realpath(beginning))
    return beginning


def count_as_users(folder: str) -> None:
    """Let the files of an installed package be the user's, as it is the program that runs."""
    global _programs  # noqa: PLW0603 -- of the process, which runs the program
    _programs = (*_programs, *_prefixes(folder))


def is_users(path: str) -> bool:
    """Return True if the file is the user's; rules count too, the user's own and the built-in ones.

    What Cython compiled names its source where it was built: it runs as no file that is here.
    """
    return not (path.startswith(("<", *_MEMLINT)) or path.endswith((".pyx", ".pxi")) or is_installed(path))


def is_installed(path: str) -> bool:
    """Return True if the file belongs to Python or to an installed package, which may have written it at run time."""
    if path.startswith(_programs):
        return False
    return path.startswith(_STANDARD_LIBRARY) or bool(_PACKAGES.search(path) or _GENERATED.match(path))


def is_standard_library(path: str) -> bool:
    """Return True if the file belongs to Python itself."""
    return path.startswith(_STANDARD_LIBRARY) and _PACKAGES.search(path) is None


def is_memlint(path: str, *, rules: bool = False) -> bool:
    """Return True if the file belongs to memlint or a stand-in in use; with `rules`, to memlint or all it brings."""
    return path.startswith(_MEMLINT_AND_RULES if rules else _MEMLINT)

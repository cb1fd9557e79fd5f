"""Versions of packages that a project asks for, where the installed ones are others and an error comes from them."""

import fnmatch
import linecache
import platform
import re
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distributions, version
from itertools import islice
from pathlib import Path
from types import ModuleType

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from memlint.base.frames import causes, text_of
from memlint.base.ownership import is_memlint, is_standard_library, is_users
from memlint.source.files import Unreadable, read_bytes
from memlint.workloads.known_packages import distribution_of

_FILES = "*requirements*.txt", "pyproject.toml", "setup.py", "setup.cfg", "*env*.y*ml", "README*", "readme*", "INSTALL*"
"""Files that name the versions of a project's packages, the surest first."""
_CHANGING = (
    "transformers",
    "pytorch_lightning",
    "lightning",
    "diffusers",
    "timm",
    "datasets",
    "peft",
    "trl",
    "accelerate",
)
"""Packages whose new versions take away what programs use."""
_OF_CONDA = {"torch-geometric": "pyg"}
"""Other names of packages in environments of conda."""
_MOST_FOLDERS = 8
_OLDEST_TORCH = "2.10"
"""The oldest that memlint runs with."""
_VERSIONS = r"(?:[=!~<>]=|=|<|>)\s*\d[\w.*]*(?:\s*,\s*(?:[=!~<>]=|<|>)\s*\d[\w.*]*)*"
_OF_PYTHON = re.compile(rf"(?:requires-python|python_requires)[\s=\"']*({_VERSIONS})")
_OF_REQUIREMENTS = (".txt", ".yml", ".yaml", ".toml")
_REQUIREMENT = re.compile(
    r"^(?:-e\s+)?[\s\"'-]*(?:(git\+\S+/([\w.-]+?)(?:\.git)?)(?=[@#\s\"']|$)|([A-Za-z][\w.-]*))", re.MULTILINE
)
"""A line that asks for a package: its address with its last part, or its name."""
_INSIDE = re.compile(r"[/\\](?:site|dist)-packages[/\\]([\w-]+)")
_OF_VERSIONS = (TypeError, AttributeError, ImportError, NotImplementedError, KeyError)
"""Errors that a function of another version raises: it takes, has or imports something else."""
_OF_OPERANDS = "unsupported operand type"
"""Words of an error of an operator: data is of another type than the program expects, whatever the line names."""


def of_another_version(error: BaseException) -> str:
    """Return a hint at a package that the project pins to another version than is installed; else empty.

    Only packages count that the error comes from: it was raised in them, on a line that uses them, or on their import.
    The cause of another error counts for it, as hydra raises one of its own.
    """
    cause = next((each for each in causes(error) if isinstance(each, _OF_VERSIONS)), error)
    is_asserted = isinstance(cause, AssertionError) and next(_packages_of(cause), "") in _CHANGING
    if not (isinstance(cause, _OF_VERSIONS) or is_asserted) or _OF_OPERANDS in text_of(cause):
        return ""
    at = cause if _users_file(cause) else error  # what a package raises from an error of its own has the user's line
    file = _users_file(at)
    if file is None:
        return ""
    for package in dict.fromkeys(_packages_of(at)):
        if package == "torch":
            continue  # memlint does not run with what older projects ask for
        if hint := _pinned_otherwise(package, Path(file)):
            return hint
    return ""


def _users_file(error: BaseException) -> str | None:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_memlint(frame.filename)]
    return next((frame.filename for frame in reversed(frames) if is_users(frame.filename)), None)


def of_another_python(error: BaseException) -> str:
    """Return a hint at the Python that a project asks for, where this one cannot read a line or lacks a module."""
    is_absent = isinstance(error, ImportError) and (error.name or "").partition(".")[0] in sys.stdlib_module_names
    file = error.filename if isinstance(error, SyntaxError) else _users_file(error) if is_absent else None
    this = platform.python_version()
    for pinned, place in _asked(_OF_PYTHON, Path(file)) if file else ():
        if not pinned.contains(this, prereleases=True):
            return f"The project asks for Python {pinned} ({place}), and this is {this}: run memlint with that one."
    return ""


def version_hint(package: str, place: str) -> str:
    """Return what to install where an installed package is another version than the file at `place` was written for.

    Where the project names no version, nobody can say which one it is, and the hint says so.
    """
    if package == "torch":
        return f"memlint runs with torch {_OLDEST_TORCH} or later, which has it elsewhere or no more: change {place}."
    file = place.rpartition(":")[0] or place
    if hint := _pinned_otherwise(package, Path(file)) if file else "":
        return hint
    distribution = distribution_of(package)
    with suppress(PackageNotFoundError):
        installed = _installed(package).partition("+")[0]
        pins = (pinned for pinned, _ in (_pins(distribution, Path(file)) if file else ()))
        bounded = (each for each in pins if any(part.operator not in (">=", ">", "!=") for part in each))
        if any(pinned.contains(installed, prereleases=True) for pinned in bounded):
            return ""
        text = f"{distribution} {installed} is installed, and no file of the project names the one it was written for"
        return f"{text}. If that is an older one, type pip install '{distribution}<{_breaking_part(installed)}'."
    return ""


def _installed(package: str) -> str:
    """Return the installed version of a package, which may be there under another name, as `mmcv-lite` for mmcv.

    Raises PackageNotFoundError, also for a module of Python's, which hides a package of its name, as argparse does.
    """
    if package in sys.stdlib_module_names:
        raise PackageNotFoundError(package)
    try:
        return version(distribution_of(package))
    except PackageNotFoundError:
        # `packages_distributions` makes an object of each file of each package, which takes seconds.
        owner = next((each for each in distributions() if _has_package(each, package)), None)
        if owner is None:
            raise
        return owner.version


def _has_package(distribution: Distribution, package: str) -> bool:
    files = f"\n{distribution.read_text('RECORD') or ''}"
    return package in (distribution.read_text("top_level.txt") or "").split() or f"\n{package}/" in files


def _breaking_part(installed: str) -> str:
    """Return the numbers of a version up to the one whose change may take names away: the first that is not zero."""
    numbers = installed.split(".")
    last = next((index for index, number in enumerate(numbers) if number != "0"), 0)
    return ".".join(numbers[: last + 1])


def of_another_time(error: BaseException) -> str:
    """Return a hint at packages of which the user's project asks for another major version than is installed.

    It is for errors of which nothing better is known, if they went through such a package, or may be of a version.
    """
    frames = traceback.extract_tb(error.__traceback__)
    passed = {inside[1] for frame in frames if (inside := _INSIDE.search(frame.filename)) is not None}
    changing = _CHANGING if isinstance(error, (*_OF_VERSIONS, SystemExit)) else passed.intersection(_CHANGING)
    file = _users_file(error)
    hints = (_pinned_otherwise(each, Path(file or ""), is_major=True) for each in changing if each in sys.modules)
    return next(filter(None, hints), "") if file else ""


def _pinned_otherwise(package: str, file: Path, *, is_major: bool = False) -> str:
    """Return a hint at the version that a file's project asks for if it is not the installed one; else empty.

    With `is_major` its first number has to be another one, too, and only the surest of its files counts.
    """
    distribution = distribution_of(package)
    with suppress(PackageNotFoundError):
        installed = _installed(package)
        for pinned, place in islice(_pins(distribution, file), 1 if is_major else None):
            major = installed.partition(".")[0]
            is_other = not pinned.contains(installed, prereleases=True)
            if is_other and not (is_major and any(each.version.partition(".")[0] == major for each in pinned)):
                wanted = shlex.quote(f"{distribution}{pinned}")
                asks = f"The project asks for {distribution}{pinned} ({place}), and {installed} is installed"
                return f"{asks}: pip install {wanted}."
    return ""


def _packages_of(error: BaseException) -> Iterator[str]:
    """Yield the packages of the frames, innermost first, and those that the last line of the user's names.

    An attribute is one of its object, whatever else the line names; what a dictionary lacks is of no package, and an
    array or a table on the line is data.
    """
    if isinstance(error, ImportError) and error.name:
        yield error.name.partition(".")[0]
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        path = frame.f_code.co_filename
        if (inside := _INSIDE.search(path)) is not None:
            yield inside[1]
        elif is_users(path) and not is_standard_library(path):
            names = [] if isinstance(error, KeyError) else re.findall(r"[^\W\d]\w*", linecache.getline(path, line))
            named = (frame.f_locals.get(name, frame.f_globals.get(name)) for name in names)
            values = [each for each in named if callable(each) or isinstance(each, ModuleType)]
            for value in [error.obj] if isinstance(error, AttributeError) and error.name else values:
                kinds = value.__mro__ if isinstance(value, type) else type(value).__mro__[:-1]
                modules = [getattr(each, "__module__", None) for each in kinds]
                for module in (getattr(value, "__module__", None) or getattr(value, "__name__", None), *modules):
                    if isinstance(module, str):
                        yield module.partition(".")[0]
            return


def _pins(distribution: str, file: Path) -> Iterator[tuple[SpecifierSet, str]]:
    """Yield the versions that files of the project around `file` ask for, each with its place."""
    names = (re.sub(r"[-_.]+", "[-_.]+", each) for each in (distribution, _OF_CONDA.get(distribution, "")) if each)
    return _asked(re.compile(rf"(?<![\w.-])(?:{'|'.join(names)})(?:\[[\w,-]*\])?\s*({_VERSIONS})", re.IGNORECASE), file)


def _asked(pattern: re.Pattern[str], file: Path) -> Iterator[tuple[SpecifierSet, str]]:
    for folder in [*file.parents][:_MOST_FOLDERS]:
        for path in _files(folder):
            with suppress(OSError, Unreadable):
                for number, line in enumerate(read_bytes(path).decode(errors="replace").splitlines(), start=1):
                    for match in pattern.finditer(line):
                        text = re.sub(r"^=(?!=)", "==", match[1]).rstrip(".")  # conda writes one sign
                        with suppress(InvalidSpecifier):
                            yield SpecifierSet(text), f"{path}:{number}"


def requirement_for(module: str, file: Path) -> str:
    """Return what the project of `file` asks for under the name of a module, without a version; empty if nothing.

    `opencv-python-headless` for cv2, `git+https://github.com/openai/CLIP.git` for clip.
    """
    package, usual = map(_normalized, (module.partition(".")[0], distribution_of(module)))
    names = {package, usual, f"python-{package}", f"{package}-python", f"py{package}", f"{package}-py", f"lib{package}"}
    for folder in [*file.parents][:_MOST_FOLDERS]:
        for path in _files(folder):
            if path.suffix not in _OF_REQUIREMENTS:
                continue
            with suppress(OSError, Unreadable):
                for match in _REQUIREMENT.finditer(read_bytes(path).decode(errors="replace")):
                    place, name = match[1], match[2] or match[3]
                    asked = _normalized(name)
                    if asked in names or asked.startswith(f"{usual}-"):
                        return place or name
    return ""


def _normalized(name: str) -> str:
    """Return a package's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _files(folder: Path) -> Iterator[Path]:
    """Yield those of `_FILES` in a folder, and what is in its `requirements` and `docker`.

    Names are matched here: in a script's process, patterns of `glob` stand for data that may be made up.
    """
    with suppress(OSError):
        names = sorted(each.name for each in folder.iterdir())
        for pattern in _FILES:
            yield from (folder / name for name in fnmatch.filter(names, pattern))
        for inside in (folder / name for name in ("requirements", "docker") if name in names):
            yield from sorted(each for each in inside.iterdir() if each.suffix in (".txt", ".yml", ".yaml"))

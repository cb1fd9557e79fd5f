"""Places where installed packages now have the names that a program imports from their former places."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from memlint.base.ownership import is_users
from memlint.workloads.known_packages import distribution_of
from memlint.workloads.older_versions.renames import NAMES

_ALIAS = re.compile(r"alias for the builtin `(\w+)`|\bUse `(?:np\.)?([\w.]+)`")
"""Messages of modules that say what a name of theirs is now."""
_ASKS = re.compile(r"is_\w+_available")
"""A function that says whether something optional is there."""
_OF_TORCH = ("torch.optim", "torch.hub", "torch.nn", "torch.nn.functional", "torch.utils.data")
"""Namespaces of PyTorch that have taken over names of other packages."""
_NOT_PUBLIC = frozenset(("tests", "testing", "__pycache__", "examples", "scripts"))


class Place(NamedTuple):
    """A value, and the dotted name that it has now."""

    value: Any
    name: str


def installed_version(package: str) -> str:
    """Return `timm 1.0.31`; the name alone for a package of Python itself, or without a version."""
    with suppress(PackageNotFoundError):
        return f"{package} {version(distribution_of(package))}"
    return package


def is_installed_package(name: str) -> bool:
    """Return True if the package that a dotted name begins with is imported and not the user's, as a script is."""
    package = name.partition(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None)
    return package != "__main__" and isinstance(file, str) and not is_users(file)


def place_of(module: str, name: str, message: str = "") -> Place | None:
    """Return what `name` of an installed `module`, or of one that is gone, is now; None if nobody can say.

    `message` is that of the error that says it is not there.
    """
    package = module.partition(".")[0]
    old = f"{module}.{name}"
    for known in (NAMES.get(old), f"{NAMES[module]}.{name}" if module in NAMES else None):
        if known is not None and (found := _at(known)) is not None:
            return found
    if alias := _ALIAS.search(message):
        return _at(f"builtins.{alias[1]}" if alias[1] else f"{package}.{alias[2]}") or _at(alias[2] or "")
    if _ASKS.fullmatch(name):
        return Place(_not_available, "never available")
    last = module.rpartition(".")[2]
    alike = [each for each in _modules(package) if each != module and each.rpartition(".")[2].lstrip("_") == last]
    parts = [f"{module}.abc"] if getattr(sys.modules.get(module), "__file__", None) else []  # one that is gone has none
    for each in (*alike, *parts, package):
        if each != module and (found := _at(f"{each}.{name}")) is not None:
            return found
    defining = _defining(package, name)
    if len(defining) == 1 and (found := _at(f"{defining[0]}.{name}")) is not None:
        return found
    others = _OF_TORCH if package != "torch" else ()
    return next(filter(None, (_at(f"{each}.{name}") for each in (*others, "typing"))), None)


def _not_available(*_arguments: object, **_named: object) -> bool:
    return False


def _at(dotted: str) -> Place | None:
    """Return the value of a dotted name: a module, or an attribute of one."""
    module, _, name = dotted.rpartition(".")
    if not module:
        return None
    with suppress(Exception):  # of modules that cannot be imported
        holder = importlib.import_module(module)
        with suppress(AttributeError):
            return Place(getattr(holder, name), dotted)
        return Place(importlib.import_module(dotted), dotted)
    return None


@cache
def _modules(package: str) -> tuple[str, ...]:
    """Return the modules of an installed package, those nearest to its top first."""
    found = []
    for place in getattr(sys.modules.get(package), "__path__", ()):
        for folder, folders, files in os.walk(place):
            folders[:] = sorted(each for each in folders if each not in _NOT_PUBLIC)
            inner = [package, *Path(folder).relative_to(place).parts]
            stems = (each.removesuffix(".py") for each in files if each.endswith(".py"))
            found += [".".join(inner if each == "__init__" else [*inner, each]) for each in stems]
    return tuple(sorted(found, key=lambda each: (each.count("."), each)))


def _defining(package: str, name: str) -> list[str]:
    """Return the modules of a package whose text defines `name` at its outermost level."""
    pattern = re.compile(rf"^(?:class|def|async def)\s+{name}\b|^{name}\s*(?::[^=\n]+)?=".encode(), re.MULTILINE)
    word = name.encode()
    return [each for each in _modules(package) if word in (text := _text(package, each)) and pattern.search(text)]


def _text(package: str, module: str) -> bytes:
    for place in _places(package):
        inner = place.joinpath(*module.split(".")[1:])
        for file in (inner.with_suffix(".py"), inner / "__init__.py"):
            with suppress(OSError):
                return file.read_bytes()
    return b""


def _places(package: str) -> Iterator[Path]:
    yield from map(Path, getattr(sys.modules.get(package), "__path__", ()))

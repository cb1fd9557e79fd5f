"""Stand-ins that other distributions bring, found through the entry-point group `memlint.libraries`.

The name of an entry is a package, its value the Library that memlint needs when a program imports this package. Nothing
is loaded before: reading the list imports no module. Where several distributions name one package, those that memlint
brings itself come last.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from memlint.base import broken_plugins
from memlint.base.broken_plugins import GROUP
from memlint.base.errors import MemlintError
from memlint.base.frames import text_of
from memlint.base.ownership import count_as_memlint, is_users

if TYPE_CHECKING:
    from memlint.libraries.library import Library

BUILT_IN = "memlint_libraries"


class PluginError(MemlintError, ImportError):
    """A package cannot be simulated since its plugin is broken: an ImportError to programs that do without it."""


class Plugins:
    """The entries that are installed, or those given."""

    def __init__(self, entries: Iterable[EntryPoint] | None = None) -> None:
        found = entry_points(group=GROUP) if entries is None else entries
        self.packages: dict[str, list[EntryPoint]] = {}
        """Entries by the name of the package that they are loaded for."""
        for entry in sorted(found, key=lambda entry: (_is_built_in(entry), entry.value)):
            self.packages.setdefault(entry.name, []).append(entry)

    def load(self, package: str) -> Library | None:
        """Give the Library for a package: of the first entry that can be loaded; None where there is no entry.

        Raises PluginError where none of the entries can be loaded.
        """
        errors = []
        for entry in self.packages.get(package, ()):
            try:
                return _loaded(entry)
            except (Exception, SystemExit) as error:
                errors.append(_broken(entry, error))
        if errors:
            raise errors[0]
        return None


_loaded_from: dict[str, EntryPoint] = {}
"""Entries of other distributions by the beginning of the paths of their files."""


def hint_for(error: BaseException) -> str:
    """Say what to do about an error that a function of a plugin raised; empty for all other errors."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        for place, entry in _loaded_from.items():
            if frame.filename.startswith(place):
                return (
                    f"The stand-in for {entry.name} that {_distribution(entry)} brings raises it "
                    f"({frame.filename}:{frame.lineno}). If the package itself would not, tell the stand-in's author."
                )
        if is_users(frame.filename):
            break
    return ""


def _loaded(entry: EntryPoint) -> Library:
    from memlint.libraries.library import Library  # noqa: PLC0415 -- it simulates; hints are for real steps as well

    library = entry.load()
    if not isinstance(library, Library):
        raise TypeError(f"{entry.value} is {library!r}, and no memlint.libraries.library.Library")
    if not _is_built_in(entry):
        _loaded_from[count_as_memlint(sys.modules[entry.module].__file__ or "")] = entry
    return library


def _broken(entry: EntryPoint, error: BaseException) -> PluginError:
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = (
        f"the stand-in for {entry.name} that {_distribution(entry)} brings cannot be loaded: "
        f"{type(error).__name__}: {text_of(error)} ({where.filename}:{where.lineno})"
    )
    broken_plugins.add(f"{text}; what {entry.name} takes of the GPU is not counted")
    broken = PluginError(text, f"Update or uninstall {entry.dist.name if entry.dist else entry.value}.")
    broken.__cause__ = error
    return broken


def _is_built_in(entry: EntryPoint) -> bool:
    return entry.module.partition(".")[0] == BUILT_IN


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value

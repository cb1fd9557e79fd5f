"""Files of which a program consists, found without running it.

Modules are looked for as Python looks for them, with its own finder and the search path that a Workload is loaded with.
A module that is nowhere on that path may be on one that the program sets up itself: then every file of the project with
such a name counts. So the result may have too many files, and too few only if `undecided` says so.
"""

import os
import pkgutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

from memlint.base.errors import MemlintError
from memlint.base.grouping import grouped
from memlint.base.ownership import is_installed, is_memlint
from memlint.source.files import python_files
from memlint.source.imports import EVERYTHING, Import, ImportReader, module_name


@dataclass(slots=True)
class ProgramFiles:
    """Files of which a program consists."""

    files: set[Path] = field(default_factory=set)
    """Paths, absolute and with links resolved. Files of installed packages are left out."""
    words: set[str] = field(default_factory=set)
    """Names of modules in its imports, split at dots."""
    undecided: bool = False
    """True if it may have files that cannot be seen without running it: then the others are not all there."""


class Project:
    """Files below one folder; the imports of each are read once."""

    def __init__(self, root: Path, *, cache: bool = True) -> None:
        """`root` is absolute; with `cache` imports are kept there between runs."""
        self.root = root
        self._imports = ImportReader(root if cache else None)
        self._imported: dict[tuple[object, ...], tuple[Path, ...]] = {}

    def parts(self, files: Iterable[Path], modules: Iterable[str] = (), *, to_the_end: bool = False) -> ProgramFiles:
        """Find the files of a program that begins with `files` and `modules`.

        Where it is undecided the others are only looked for if it goes `to_the_end`.
        """
        starts = [file.resolve() for file in files]
        search_path = self._search_path(starts)
        program = ProgramFiles()
        pending = list(starts)
        for each in map(Import, modules):
            program.words.update(each.words)
            pending += self._files_of(each, self.root, search_path)
        while pending and (to_the_end or not program.undecided):
            file = pending.pop()
            if file in program.files or _is_foreign(file):
                continue
            program.files.add(file)
            pending += _packages(file.parent)
            if file.suffix != ".py":
                continue
            imports = self._imports(file)
            program.undecided = program.undecided or imports.undecided
            pending += [(base / name).resolve() for name in imports.files for base in (file.parent, self.root)]
            for each in imports.modules:
                program.words.update(each.words)
                pending += self._files_of(each, file.parent, search_path)
        return program

    def files_of(self, each: Import, folder: Path, starts: Sequence[Path]) -> tuple[Path, ...]:
        """Return the project's files that an import in a file of `folder` runs, in a program that begins with `starts`.

        A package that is nowhere is looked for by its whole name only.
        """
        search_path = self._search_path(starts)
        return tuple(file for file in self._files_of(each, folder, search_path) if not _is_foreign(file))

    def _search_path(self, files: Sequence[Path]) -> tuple[str, ...]:
        """Return `sys.path` as it is when these files are loaded.

        A package in `src` may be installed from there in any way.
        """
        own = (*map(_folder, files), self.root, self.root / "src")
        last = (file.parent for file in files)
        return tuple(dict.fromkeys((*map(str, own), *sys.path, *map(str, last))))

    def _files_of(self, each: Import, folder: Path, search_path: tuple[str, ...]) -> tuple[Path, ...]:
        """Return the files that an import in a file of `folder` runs."""
        key = (each, folder) if each.level else (each, search_path)
        if key not in self._imported:
            self._imported[key] = tuple(file.resolve() for file in self._look_for(each, folder, search_path))
        return self._imported[key]

    def _look_for(self, each: Import, folder: Path, search_path: Sequence[str]) -> Iterator[Path]:
        names = each.module.split(".") if each.module else []
        inside: Sequence[str] = search_path
        if each.level:
            base = (folder, *folder.parents)[min(each.level - 1, len(folder.parents))]
            yield from _packages(base)
            inside = [str(base)]
        elif not names or names[0] in sys.builtin_module_names:
            return
        for name in names:
            module = _find(name, inside)
            if module is None:
                yield from self._with_name(names)
                return
            if module.file is not None:
                yield module.file
                if _is_foreign(module.file):
                    return
            inside = module.inside
        of_package = each.names
        if EVERYTHING in of_package:
            of_package = tuple(each.name for each in pkgutil.iter_modules(inside))
        modules = (_find(name, inside) for name in of_package)
        yield from (module.file for module in modules if module is not None and module.file is not None)

    def _with_name(self, names: Sequence[str]) -> Iterator[Path]:
        files = self._by_name[names[-1]]
        return (file for file in files if _module_path(file).parts[-len(names) :] == tuple(names))

    @cached_property
    def _by_name(self) -> defaultdict[str, list[Path]]:
        files = (file for file in python_files([self.root]) if file.suffix == ".py")
        return grouped((_module_path(file).name, file) for file in files)


class _Module(NamedTuple):
    file: Path | None
    """File of the module; None for a package without `__init__.py`."""
    inside: Sequence[str]
    """Folders of the modules in it."""


def _find(name: str, folders: Sequence[str]) -> _Module | None:
    spec = PathFinder.find_spec(name, folders) if folders else None
    if spec is None:
        return None
    file = Path(spec.origin) if spec.has_location and spec.origin else None
    return _Module(file, list(spec.submodule_search_locations or ()))


def _folder(file: Path) -> Path:
    """Return the folder from which a file is imported."""
    try:
        return module_name(file)[1]
    except (MemlintError, RecursionError, MemoryError):
        return file.parent


def _module_path(file: Path) -> Path:
    """Return the file without its suffix, or its folder if it is that of a package."""
    return file.parent if file.name == "__init__.py" else file.with_suffix("")


def _packages(folder: Path) -> Iterator[Path]:
    """Yield the `__init__.py` of the package that `folder` is, and of those it is in."""
    while os.path.isfile(folder / "__init__.py"):  # noqa: PTH113 -- some text that stands for a path may be too long
        yield folder / "__init__.py"
        folder = folder.parent


def _is_foreign(file: Path) -> bool:
    """Return True if it belongs to Python, to an installed package, or to memlint."""
    return is_installed(str(file)) or is_memlint(str(file), rules=True)

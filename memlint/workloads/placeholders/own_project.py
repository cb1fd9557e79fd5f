"""The user's project, found as if it was installed: packages of it that are not on the search path."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import linecache
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import FrameType

from memlint.base.guarded_imports import is_guarded
from memlint.base.ownership import is_users
from memlint.memory.records import Frame
from memlint.source.files import folders_of_modules
from memlint.workloads.placeholders.absent_packages import record
from memlint.workloads.placeholders.import_lines import asking, imported, is_own

_VERSIONS = frozenset(("version", "_version", "__version__"))
"""Names of modules that a project's installation writes."""


def find_project(root: Path, folders: Sequence[Path] = ()) -> None:
    """Let the project at `root` be found where it is not on the search path, as if it was installed.

    Its packages may be in one of `folders`, and it may itself be one.
    """
    sys.meta_path.append(_ProjectFinder(root, folders))


class _OwnDistribution(Distribution):
    """The metadata of the user's project in place of that which its installation writes."""

    def __init__(self, name: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.0\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        raise FileNotFoundError(path)


class _ProjectFinder(MetaPathFinder):
    """Import hook behind all others: it finds packages of the user's project that nobody else has found."""

    def __init__(self, root: Path, folders: Sequence[Path]) -> None:
        self._root, self._folders = root, [str(folder) for folder in folders]

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> ModuleSpec | None:
        frame = asking()
        if frame is None:
            return None
        if "." in fullname:
            return self._hidden(fullname, frame) or self._written(fullname, frame)
        around = [str(self._root.parent)] if fullname == self._root.name else []
        found = self._found(fullname, (*self._folders, *around))
        if found is None or found[0].origin is None:  # a plain folder may hide the package, as where it is built
            found = self._found(fullname, self._elsewhere(fullname, frame)) or found
        if found is None:
            return None
        spec, folder = found
        _note(f"{fullname} is in {folder}, which is taken to be on the search path", frame)
        return spec

    @staticmethod
    def _found(fullname: str, folders: Iterable[str]) -> tuple[ModuleSpec, str] | None:
        """Return the first module of a name in one of the folders, and that folder."""
        found = ((spec, folder) for folder in folders if (spec := PathFinder.find_spec(fullname, [folder])))
        return next(found, None)

    def _hidden(self, fullname: str, frame: FrameType) -> ModuleSpec | None:
        """Return a module in a folder of the project that an installed package of its name hides."""
        *packages, _name = fullname.split(".")
        for folder in self._folders:
            if spec := PathFinder.find_spec(fullname, [str(Path(folder, *packages))]):
                _note(f"{fullname} is in {folder}, where the installed package {packages[0]} hides it", frame)
                return spec
        return None

    def _written(self, fullname: str, frame: FrameType) -> ModuleSpec | None:
        """Return a module in place of the one in which only the project's installation writes its version."""
        package, _, name = fullname.rpartition(".")
        is_own = any(map(is_users, map(str, getattr(sys.modules.get(package), "__path__", ()))))
        if name not in _VERSIONS or not is_own or is_guarded(frame.f_code.co_filename, frame.f_lineno):
            return None
        _note(f"{fullname}, which the installation writes, is not there: it says 0.0.0", frame)
        return importlib.util.spec_from_file_location(fullname, Path(__file__).with_name("no_version.py"))

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        """Find the metadata of the project itself, which is not installed: its code may ask for its own version."""
        name = (context.name or "" if context is not None else "").lower().replace("-", "_")
        frame: FrameType | None = sys._getframe()
        while frame is not None and _is_of_metadata(frame.f_code.co_filename):
            frame = frame.f_back
        folders = (self._root, self._root / "src", *map(Path, self._folders))
        packages = (name, name.replace("_", "/")) if name else ()  # the latter is in a namespace
        is_own = any((folder / each / "__init__.py").is_file() for folder in folders for each in packages)
        if is_own and frame is not None and is_users(frame.f_code.co_filename):
            _note(f"{name} is the project, which is not installed: its version is 0.0.0", frame)
            yield _OwnDistribution(name)

    def _elsewhere(self, name: str, frame: FrameType) -> Iterator[str]:
        """Yield the only folder of the project with a module of this name that has what the importing line takes.

        None for an import that the file can do without, as it does where it is run.
        """
        if is_guarded(frame.f_code.co_filename, frame.f_lineno):
            return
        folders = [folder for folder in self._holding.get(name, ()) if _gives(folder, name, frame)]
        yield from map(str, folders if len(folders) == 1 else ())

    @cached_property
    def _holding(self) -> Mapping[str, Collection[Path]]:
        """The folders of the project that have a module or a package of Python's files, by its name."""
        return folders_of_modules(self._root)


def _note(text: str, frame: FrameType) -> None:
    """Note how something of the project was found, with the line that first wanted it."""
    record.elsewhere.setdefault(text, Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))


def _is_of_metadata(path: str) -> bool:
    return is_own(path) or path == importlib.metadata.__file__


def _gives(folder: Path, name: str, frame: FrameType) -> bool:
    """Return True if the module `name` in a folder has what the line that imports it takes from it."""
    path = frame.f_code.co_filename
    taken = [each.split(".") for each in imported(Frame(path, frame.f_lineno, "")) if not each.endswith("*")]
    taken = [each for each in taken if each[0] == name]
    if taken == [[name]]:
        uses = re.findall(rf"(?<![\w.]){name}\.([A-Za-z]\w*)", "".join(linecache.getlines(path)))
        taken += [[name, each] for each in uses if each != "py"]
    return bool(taken) and all(_has(folder / name, each[1:]) for each in taken)


def _has(module: Path, names: Sequence[str]) -> bool:
    """Return True if a module has a module inside it, or the word in its text, of each of these names.

    A file has no modules inside it, so that only one name can be taken from it.
    """
    if len(names) > 1 and not module.is_dir():
        return False
    for name in names:
        if (module / name).is_dir() or (module / f"{name}.py").is_file():
            module /= name
            continue
        file = next((each for each in (module.with_suffix(".py"), module / "__init__.py") if each.is_file()), None)
        return file is not None and re.search(rf"\b{name}\b", file.read_text(errors="replace")) is not None
    return True

"""Lets programs find libraries that are not installed here, or that refuse to load without a GPU.

A stand-in is found last of all, and only by a program that imports the library itself: until then, code that only
probes for the package, as others do to choose their kernels, sees that it is absent. A package that the program imports
finds what the same file imports as well, before it or after it.
"""

import dis
import functools
import importlib
import linecache
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from importlib.util import find_spec
from types import CodeType, FrameType, ModuleType
from typing import Any

from memlint.base.after_import import after_import, before_import
from memlint.base.guarded_imports import imported_with
from memlint.base.ownership import is_users
from memlint.libraries.library import Library, Metadata, assume_once
from memlint.libraries.plugins import PluginError, Plugins

_IMPORTING = {"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>", importlib.__file__}
"""Files of Python that import; `importlib.util.find_spec`, which only asks, is in another."""
_ASKING = find_spec.__code__.co_filename


class StandIn(ModuleType):
    """A module of a library that is not there."""

    library: Library

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if self.library.has_module(full):
            return importlib.import_module(full)
        if _is_optional(full, self.library):
            raise AttributeError(f"memlint does not model {full}")
        value = self.library.unknown(full)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Keep what is known where an inner module has its name: the library imports the function after the module."""
        known = self.library.modules.get(self.__name__, {}) if isinstance(value, StandIn) else {}
        if name not in known:
            super().__setattr__(name, value)


class Finder(MetaPathFinder, Loader):
    """Finds libraries where nobody else does."""

    def __init__(self, libraries: Iterable[Library], plugins: Plugins | None = None) -> None:
        self._given = tuple(libraries)
        self._plugins = plugins or Plugins(())
        self._libraries: dict[str, Library] = {}
        self._extensions = _ExtensionFinder()
        self._used: set[str] = set()
        self.has_own_ops = False
        """True if the program has declared ops of a namespace of `torch.ops`."""

    def install(self) -> None:
        """Find them from now on, and replace what is known in those that are installed."""
        sys.meta_path.append(self)
        for library in self._given:
            self._enter(library)
        for package in self._plugins.packages:
            before_import(package, functools.partial(self._prepare, package))
        sys.meta_path.insert(0, self._extensions)

    def _enter(self, library: Library) -> None:
        self._libraries[library.name] = library
        self._extensions.enter(library)
        for name, functions in library.modules.items() if not library.keeps_installed else ():
            after_import(name, _replacing(functions))
        for name, patch in library.patches.items():
            after_import(name, patch)
        after_import(library.name, _entering(library))

    def _load(self, package: str) -> None:
        """Enter the Library that a plugin has for the package. Raises PluginError where the plugin is broken."""
        library = self._plugins.load(package)
        if library is not None and library is not self._libraries.get(library.name):
            self._enter(library)

    def _prepare(self, package: str) -> None:
        """Do the same for a package that is installed: where the plugin is broken, it runs as it is."""
        with suppress(PluginError):  # which stands under `Assumed`
            self._load(package)

    def use(self, name: str) -> None:
        """Let everybody find the library, as the program wants it."""
        if find_spec(name) is None:
            self._load(name)
            self._used.add(name)

    def declare(self, name: str, function: Any) -> None:
        """Let a function be known by its dotted name, in a library or in a module that is found nowhere else."""
        module, _, function_name = name.rpartition(".")
        top = module.partition(".")[0]
        self._load(top)
        library = self._libraries.setdefault(top, Library(top, distribution=top, version="declared"))
        library.modules.setdefault(module, {})[function_name] = function
        after_import(module, lambda found: setattr(found, function_name, function))

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> ModuleSpec | None:
        """Find a module of a library that is not installed, or the compiled part of one that is."""
        top, _, inner = fullname.partition(".")
        if not self.knows(top) or (inner and not isinstance(sys.modules.get(top), StandIn)):
            return None
        if top not in self._used and not _program_imports(top):
            return None
        self._load(top)
        if top not in self._libraries:  # the plugin is for what another package needs where this one is installed
            return None
        library = self._libraries[top]
        if inner and not library.has_module(fullname) and _is_optional(fullname, library):
            return None
        self._used.add(top)
        return ModuleSpec(fullname, self, origin="memlint", is_package=True)

    def knows(self, package: str) -> bool:
        """Return True if there is a Library for the package, or a plugin that has one."""
        return package in self._libraries or package in self._plugins.packages

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the stand-in."""
        module = StandIn(spec.name)
        module.library = self._libraries[spec.name.partition(".")[0]]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give it what is known."""
        assert isinstance(module, StandIn)
        module.__dict__.update(module.library.modules.get(module.__name__, {}), __version__=module.library.version)
        if module.__name__ == module.library.name:
            module.library.enter_ops()

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        """Find the metadata of stand-ins that are in use."""
        distribution = None if context is None or context.name is None else context.name.lower().replace("_", "-")
        for name in sorted(self._used):
            library = self._libraries[name]
            if distribution is None or distribution == library.distribution.replace("_", "-"):
                yield Metadata(library)


def is_simulated(package: str) -> bool:
    """Return True if memlint has something in place of the package where it is not installed."""
    return any(isinstance(each, Finder) and each.knows(package) for each in sys.meta_path)


class _ExtensionFinder(MetaPathFinder, Loader):
    """Finds the compiled modules of libraries that are installed, so that these can be imported."""

    def __init__(self) -> None:
        self._extensions: dict[str, Library] = {}

    def enter(self, library: Library) -> None:
        """Find those of this library from now on."""
        self._extensions.update(dict.fromkeys(library.extensions, library))

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> ModuleSpec | None:
        """Find a compiled module of a library that is being imported."""
        library = self._extensions.get(fullname)
        return ModuleSpec(fullname, self, origin="memlint") if library and library.name in sys.modules else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the stand-in."""
        module = StandIn(spec.name)
        module.library = self._extensions[spec.name]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give it what is known, which is nothing where the library's own Python is replaced."""
        assert isinstance(module, StandIn)
        module.__dict__.update(module.library.modules.get(module.__name__, {}))


def _is_optional(name: str, library: Library) -> bool:
    """Return True if a file of the program can do without what it imports, of which nothing is modelled."""
    frame = _importer()
    if frame is None or not is_users(frame.f_code.co_filename) or not _begins_import(frame):
        return False
    together = list(imported_with(frame.f_code.co_filename, frame.f_lineno))
    is_optional = bool(together) and not any(map(library.models, together))
    if is_optional:
        assume_once(f"{name} is not modelled, and the program does without it: {library.distribution} is not installed")
    return is_optional


def _begins_import(frame: FrameType) -> bool:
    """Return True if the running instruction imports a module, or takes a name from one."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("IMPORT_NAME", "IMPORT_FROM")


def _importer() -> FrameType | None:
    """Return the frame that imports."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in {*_IMPORTING, __file__}:
        frame = frame.f_back
    return frame


def _replacing(functions: dict[str, Any]) -> Callable[[ModuleType], None]:
    return lambda module: module.__dict__.update(functions)


def _entering(library: Library) -> Callable[[ModuleType], None]:
    return lambda _module: library.enter_ops()


def _program_imports(name: str) -> bool:
    """Return True if the caller imports it in a file of the program, or for one that imports or requires it as well."""
    frame = _importer()
    if frame is None or is_users(frame.f_code.co_filename):
        return frame is not None
    if frame.f_code.co_filename == _ASKING:
        return False
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file) and (name in _imported(frame.f_code) or _is_required(name, file)):
            return True
        frame = frame.f_back
    return False


@functools.cache
def _is_required(name: str, file: str) -> bool:
    """Return True if a file says, as in a message, that it requires the package."""
    spelled = re.escape(name).replace("_", "[-_]")
    return re.search(rf"requires?\b[^\n]*\W{spelled}\b", "".join(linecache.getlines(file))) is not None


@functools.cache
def _imported(code: CodeType) -> frozenset[str]:
    """The packages that these lines import."""
    names = (each.argval for each in dis.get_instructions(code) if each.opname == "IMPORT_NAME")
    return frozenset(name.partition(".")[0] for name in names)

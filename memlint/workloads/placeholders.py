"""Placeholders for missing packages that the model itself never uses, such as cv2 for drawing or wandb for logs.

If a file cannot be imported because a package is missing, memlint imports it once more with a placeholder in the
package's place. Files may import the placeholder, name it in annotations and use it as a decorator; its functions do
nothing during imports. Any other use, above all by the model, fails and says what to install.

A script cannot be imported once more: there a finder behind all others gives each package that is missing a placeholder
at once. Those of packages that no tensor passes through do nothing, whenever they are used. All others may be called
with anything but tensors, and give placeholders; they fail where a tensor comes to them, or a number is wanted of them.
"""

from __future__ import annotations

import ast
import dis
import functools
import importlib.metadata
import importlib.util
import inspect
import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import CodeType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any, NoReturn

import torch
from torch import nn

from memlint.base.after_import import after_import
from memlint.base.errors import WorkloadError
from memlint.base.guarded_imports import is_guarded, statements_at
from memlint.base.ownership import is_installed, is_users
from memlint.libraries import extensions
from memlint.libraries.op_template import OP_TEMPLATE
from memlint.memory.records import Assumption, Frame
from memlint.source.files import folders_of_modules
from memlint.workloads.known_packages import NEEDS, STOOD_FOR, Kind, kind_of
from memlint.workloads.missing_modules import absent, remedy
from memlint.workloads.pinned_versions import version_hint

_LONGEST = 160
"""Maximum number of characters of a displayed error."""
_WITH_IMPORTER = 2
_IMPORTING = (
    *("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"),
    *(importlib.import_module.__code__.co_filename, __file__),
)
"""Files that import; `importlib.util.find_spec`, which only asks, is in another."""
_VERSIONS = frozenset(("version", "_version", "__version__"))
"""Names of modules that a project's installation writes."""
_USES = (
    "bool", "iter", "next", "len", "contains", "int", "float", "index", "add", "radd", "sub", "rsub", "mul",
    "rmul", "truediv", "rtruediv", "neg", "lt", "gt", "le", "ge", "setitem",
)  # fmt: skip
"""Python's operations on an object, as special methods."""


def expect(names: Sequence[str]) -> None:
    """Replace these packages, installed or not, by placeholders in files that are imported from now on."""
    _finder.replaced.update(dict.fromkeys(names))
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def find_project(root: Path, folders: Sequence[Path] = ()) -> None:
    """Let the project at `root` be found where it is not on the search path, as if it was installed.

    Its packages may be in one of `folders`, and it may itself be one.
    """
    sys.meta_path.append(_ProjectFinder(root, folders))


def expect_in_script(names: Sequence[str], required: Callable[[], Iterable[str]], *, quiet: bool = False) -> None:
    """Replace these packages by placeholders that do nothing in a script, and packages that are missing there as well.

    `required` gives all packages that the script has to import and that may be missing. With `quiet` no placeholder
    fails, whatever it stands for: only what the script builds is asked for.
    """
    expect(names)
    _finder.is_quiet = quiet
    _finder.quiet.update(names)
    _finder.in_script, _finder.required = True, required
    sys.meta_path.append(_MissingFinder())
    after_import("torch.utils.cpp_extension", _stand_in_for_what_is_not_compiled)


def with_placeholders(load: Callable[[], ModuleType], target: Path) -> ModuleType:
    """Return the module that `load` imports, with placeholders for missing packages. Passes on any other exception.

    `target` is the analysed file: none of its classes may derive from a class of a missing package.
    """
    modules, _finder.target = set(sys.modules), str(target)
    _finder.importing += 1
    try:
        while True:
            try:
                return load()
            except Exception as error:
                if _stands_in_for_extensions(error):
                    forget_users(modules)
                    continue
                missing = _missing(error) if isinstance(error, ModuleNotFoundError) else _failing(error)
                if missing is None or missing[0] in _finder.replaced:
                    raise
                expect(())
                _finder.replaced.update([missing])
                if not isinstance(error, ModuleNotFoundError):
                    _finder.failed[missing[0]] = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"
                    _finder.remedies[missing[0]] = (isinstance(error, NameError) and absent(error)) or _where(error)
                forget_users(modules)
    finally:
        _finder.importing -= 1


def forget_users(modules: Iterable[str]) -> None:
    """Let the user's modules, except `modules`, be imported again, and packages register what is in them again."""
    for name in sys.modules.keys() - set(modules):
        if is_users(getattr(sys.modules[name], "__file__", None) or "<"):
            del sys.modules[name]
    for module in list(sys.modules.values()):
        is_torch = getattr(module, "__name__", "").partition(".")[0] == "torch"  # which warns where it is looked at
        if not is_torch and is_installed(getattr(module, "__file__", None) or "<"):
            for table in _tables(module):
                for key in [key for key, value in table.items() if _is_of_none(value)]:
                    del table[key]


def _is_of_none(value: object) -> bool:
    """Return True for a class or function whose module was forgotten, or did not get to its end."""
    return isinstance(value, type | FunctionType) and value.__module__ not in sys.modules


def _tables(module: ModuleType) -> Iterator[dict[Any, Any]]:
    """Yield the dictionaries of a module and of the objects in it, such as a registry of classes by name."""
    for value in list(vars(module).values()):
        if type(value) is dict:
            yield value
        elif type(value).__module__.partition(".")[0] == module.__name__.partition(".")[0]:
            own = getattr(value, "__dict__", None)  # some objects have something of their own under every name
            yield from (each for each in own.values() if type(each) is dict) if type(own) is dict else ()


def assumptions() -> list[Assumption]:
    """Return the packages with placeholders, and the lines that first imported them."""
    texts = {
        name: f"a placeholder that {_behaviour(name)} replaces {name}, {_reason(name, frame)}"
        for name, frame in _finder.replaced.items()
    }
    placed = [Assumption(text, _finder.replaced[name]) for name, text in texts.items()]
    return placed + [Assumption(text, frame) for text, frame in _finder.elsewhere.items()]


def missing() -> list[str]:
    """Return the packages that are not installed and have placeholders that fail when they are used."""
    names = [name for name, frame in _finder.replaced.items() if frame and name not in _finder.failed]
    others = (name for name in _finder.required() if name not in names)
    return [name for name in (*names, *others) if _finder.kind_of(name) is None]


def lacking(importer: str = "") -> str:
    """Return advice on all packages that are missing and that a script, the `importer`, may need; empty without any."""
    names = missing()
    return remedy(names[0], importer, names[1:]) if names else ""


def has_called() -> bool:
    """Return True if a script has called something of a package that is missing, and went on."""
    return _finder.has_called


def last_use() -> AbsentError | None:
    """Return the error that the last use of a missing package has raised."""
    return _finder.last_use


def stand_in_for_name(name: str, reason: str, *, is_quiet: bool = False) -> object:
    """Return a placeholder for a name that an installed package does not have.

    With `is_quiet` it does nothing; else it fails when it is used, for this `reason`.
    """
    if is_quiet:
        _finder.quiet.add(name)
    _finder.gone[name] = reason
    return _absent(name)


def is_placeholder(value: object) -> bool:
    """Return True for an object of a missing package."""
    return issubclass(type(value), _Absent)


def is_missing(package: str) -> bool:
    """Return True if a package is not installed, and memlint has nothing that simulates it."""
    from memlint.libraries.finders import is_simulated  # noqa: PLC0415 -- a process that takes real steps has none

    try:
        return importlib.util.find_spec(package) is None and not is_simulated(package)
    except (ImportError, ValueError):  # a module without a spec, which is there
        return False


def _behaviour(name: str) -> str:
    kind = _finder.kind_of(name)
    if kind is None:
        in_script = "a tensor or a number passes through it"
        return f"fails when {in_script if _finder.in_script else 'the model uses it'}"
    return "gives what it is to iterate over" if kind == "progress" else "does nothing"


def _reason(name: str, frame: Frame | None) -> str:
    if name in _finder.failed:
        return f"which cannot be imported: {_finder.failed[name]}"
    return "which is not installed" if frame else "as --stub asks"


class AbsentError(WorkloadError):
    """The program uses an object of a missing package."""

    package = ""
    """Name of the package, if it is not installed."""


class _Absent:
    """An object of a missing package."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> _Absent:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _absent(f"{self._name}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        kind = _finder.kind_of(self._name)
        if kind is None and not self._may_be_called(arguments, named):
            self._fail()
        if len(arguments) == 1 and not named and isinstance(arguments[0], FunctionType | type):
            return arguments[0]  # of a decorator
        items = arguments[0] if arguments else None
        if kind == "progress" and isinstance(items, Iterable) and not isinstance(items, str):
            return _Progress(f"{self._name}()", items)
        return (_Zero if kind == "metric" else _absent)(f"{self._name}()")

    def _may_be_called(self, arguments: Sequence[object], named: Mapping[str, object]) -> bool:
        """Return True while files are imported; in a script also with anything that is no tensor and has none."""
        if _finder.is_importing():
            return True
        is_gone = any(f"{self._name}.".startswith(f"{each}.") for each in (*_finder.gone, *_finder.failed))
        would_be_called = len(arguments) == 1 and isinstance(arguments[0], FunctionType | type)
        if is_gone or would_be_called or not _finder.in_script:
            return False
        if any(map(_has_tensors, (*arguments, *named.values()))):
            return False
        _finder.has_called = True
        return True

    def __getitem__(self, _key: object) -> _Absent:
        return self  # of an annotation

    def __or__(self, _other: object) -> _Absent:
        return self

    __ror__ = __or__

    def __enter__(self) -> _Absent:
        if _finder.kind_of(self._name) is None and not self._may_be_called((), {}):
            self._fail()
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def __mro_entries__(self, _bases: object) -> tuple[type, ...]:
        if _finder.kind_of(self._name) is not None:
            absent = _absent(f"{self._name}()")
            members = {"__init__": lambda *_, **__: None, "__getattr__": lambda _, name: getattr(absent, name)}
            return (type(self._name.rpartition(".")[2], (), members),)
        frame = _asking()
        of_target = frame is not None and frame.f_code.co_filename == _finder.target
        if of_target or not (_finder.in_script or _finder.importing):
            self._fail()
        return (type(self._name.rpartition(".")[2], (), {"__new__": lambda _class, *_, **__: self._fail()}),)

    def __instancecheck__(self, _value: object) -> bool:
        return False

    __subclasscheck__ = __instancecheck__

    def _fail(self, *_arguments: object) -> NoReturn:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        package = self._name.partition(".")[0]
        gone = next((name for name in _finder.gone if f"{self._name}.".startswith(f"{name}.")), "")
        if gone:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            raise AbsentError(f"{gone} is used, but {_finder.gone[gone]} ({place})", version_hint(package, place))
        failed = next((name for name in _finder.failed if f"{self._name}.".startswith(f"{name}.")), "")
        reason = _finder.failed.get(failed)
        is_missing = "is not available" if reason is None else f"cannot be imported: {reason}"
        parts = self._name.split(".")
        modules = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        module = next((each for each in modules if each in sys.modules), package)
        missed = remedy(module, _finder.target or frame.f_code.co_filename, missing() if reason is None else ())
        hint = _finder.remedies.get(failed) or missed
        if package in _finder.failed and reason == _finder.uncompiled:
            hint = f"Compile it, or estimate the step on the host: memlint check {_finder.target} --gpu=cpu"
            if _finder.in_script:
                hint = (
                    f"Say what it gives, saves and takes: {OP_TEMPLATE.format(name=self._name)}; see docs/libraries.md."
                )
        error = AbsentError(
            f"{self._name} is used, but {package} {is_missing} ({frame.f_code.co_filename}:{frame.f_lineno})", hint
        )
        error.package = "" if reason else package
        _finder.last_use = error
        raise error


def _has_tensors(value: object, depth: int = 2) -> bool:
    """Return True for a tensor, a module, the parameters of one, and collections of these."""
    if isinstance(value, GeneratorType):
        return value.gi_code.co_filename == nn.Module.parameters.__code__.co_filename
    if depth and isinstance(value, list | tuple | dict):
        return any(_has_tensors(each, depth - 1) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, torch.Tensor | nn.Module)


for _use in _USES:
    setattr(_Absent, f"__{_use}__", _Absent._fail)


class _Quiet(_Absent):
    """An object of a package that no tensor passes through: a logger, a plot, a client of a cloud."""

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return 0

    def __contains__(self, _item: object) -> bool:
        return False

    def __iter__(self) -> Iterator[_Absent]:
        """Yield as many objects as the calling line takes apart: `figure, axes = subplots()`; in a loop none."""
        frame = sys._getframe(1)
        opcode, number = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
        return iter([self] * (number if dis.opname[opcode] == "UNPACK_SEQUENCE" else 0))

    def __setitem__(self, _key: object, _value: object) -> None:
        pass

    def __add__(self, text: Any) -> Any:
        if not isinstance(text, str):
            self._fail()
        return text  # what it would colour

    __radd__ = __add__

    def __str__(self) -> str:
        return ""

    def __fspath__(self) -> str:
        return "."  # a logger's folder

    def __format__(self, _specification: str) -> str:
        return ""


class _Pliant(_Quiet):
    """An object of any package in a script of which only what it builds is asked for: nothing fails."""

    def __float__(self) -> float:
        return 0.0

    def __int__(self) -> int:
        return 1

    __index__ = __int__

    def _same(self, *_arguments: object) -> _Absent:
        return self

    def _never(self, *_arguments: object) -> bool:
        return False


for _use in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg"):
    setattr(_Pliant, f"__{_use}__", _Pliant._same)
for _use in ("lt", "gt", "le", "ge"):
    setattr(_Pliant, f"__{_use}__", _Pliant._never)


class _Progress(_Quiet):
    """A progress bar: it gives what it was made for."""

    def __init__(self, name: str, items: Iterable[Any]) -> None:
        super().__init__(name)
        self._items: Any = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class _Zero(_Quiet, float):
    """The result of a metric: nobody knows it."""

    def __new__(cls, _name: str) -> _Zero:
        return float.__new__(cls)

    def __format__(self, specification: str) -> str:
        return format(0.0, specification)


for _use in (*_USES, "bool"):
    if f"__{_use}__" in vars(float):
        setattr(_Zero, f"__{_use}__", vars(float)[f"__{_use}__"])
_Zero.__str__ = float.__repr__  # type: ignore[method-assign]
for _kind in (_Absent, _Quiet, _Pliant, _Progress, _Zero):
    _kind.__name__ = _kind.__qualname__ = "PlaceholderOfMissingPackage"  # as errors of PyTorch and Python name it


def _absent(name: str) -> _Absent:
    if _finder.is_quiet:
        return _Pliant(name)
    return (_Absent if _finder.kind_of(name) is None else _Quiet)(name)


class _Module(ModuleType):
    """A missing package or module."""

    def __getattr__(self, name: str) -> _Absent:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _absent(f"{self.__name__}.{name}")


class _Finder(MetaPathFinder, Loader):
    """Import hook that gives the user's files a placeholder for each module in `replaced`, with its first import."""

    def __init__(self) -> None:
        self.replaced: dict[str, Frame | None] = {}
        """First import by dotted name; None for packages that the user asked to replace."""
        self.failed: dict[str, str] = {}
        """Errors of installed packages whose import fails."""
        self.gone: dict[str, str] = {}
        """By name that an installed package does not have: how a message says so."""
        self.remedies: dict[str, str] = {}
        """By module whose import fails: what to do about what it lacks, if its error says so."""
        self.uncompiled = ""
        """Why extensions cannot be compiled here."""
        self.importing = 0
        self.in_script = False
        """True if a script is run, which is never imported once more."""
        self.required: Callable[[], Iterable[str]] = tuple
        """Gives the packages that a script has to import and that may be missing."""
        self.is_quiet = False
        """True if all placeholders do nothing."""
        self.quiet: set[str] = set()
        """Packages to do without: they do nothing, whenever they are used."""
        self.elsewhere: dict[str, Frame] = {}
        """Descriptions of packages of the user's that were not on the search path, with their first import."""
        self.target = ""
        self.has_called = False
        """True if a script has called something of a package that is missing, and went on."""
        self.last_use: AbsentError | None = None
        """The error of the last use of a package that is missing, which a script may have caught."""

    def kind_of(self, name: str) -> Kind | None:
        """Return the way in which the placeholder of this dotted name behaves; None if it fails when it is used."""
        if any(f"{name}.".startswith((f"{each}.", f"{each}()")) for each in self.quiet):
            return "quiet"
        known = kind_of(name.replace("()", "")) if self.in_script else None
        return known or ("quiet" if self.is_quiet else None)

    def is_importing(self) -> bool:
        """Return True if a file is being imported; of a script the line that calls has to be one of its modules."""
        if not self.in_script:
            return self.importing > 0
        frame: FrameType = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
        return not is_function and frame.f_globals.get("__name__") != "__main__"

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> ModuleSpec | None:
        name = next((name for name in self.replaced if f"{fullname}.".startswith(f"{name}.")), None)
        if name is None:
            needed = NEEDS.get(fullname) if self.in_script else None
            if needed is None or importlib.util.find_spec(needed):
                return None
            return self.stand_in(fullname, _behind_package(fullname.partition(".")[0]))
        if not isinstance(sys.modules.get(fullname.rpartition(".")[0]), _Module):
            frame = _asking()
            if frame is None or (self.replaced[name] and is_guarded(frame.f_code.co_filename, frame.f_lineno)):
                return None
        return ModuleSpec(fullname, self, is_package=True)

    def stand_in(self, fullname: str, frame: FrameType | None) -> ModuleSpec | None:
        """Give the user's file that imports in `frame` a placeholder for a module, if it cannot do without it."""
        if frame is None or is_guarded(frame.f_code.co_filename, frame.f_lineno) or _is_optional(frame.f_back):
            return None
        if fullname in STOOD_FOR:
            return None
        self.replaced[fullname] = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


_finder = _Finder()


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
        frame = _asking()
        if frame is None:
            return None
        if "." in fullname:
            return self._hidden(fullname, frame) or self._written(fullname, frame)
        around = [str(self._root.parent)] if fullname == self._root.name else []
        for folder in (*self._folders, *around, *self._elsewhere(fullname, frame)):
            if spec := PathFinder.find_spec(fullname, [folder]):
                text = f"{fullname} is in {folder}, which is taken to be on the search path"
                place = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
                _finder.elsewhere.setdefault(text, place)
                return spec
        return None

    def _hidden(self, fullname: str, frame: FrameType) -> ModuleSpec | None:
        """Return a module in a folder of the project that an installed package of its name hides."""
        *packages, _name = fullname.split(".")
        for folder in self._folders:
            if spec := PathFinder.find_spec(fullname, [str(Path(folder, *packages))]):
                text = f"{fullname} is in {folder}, where the installed package {packages[0]} hides it"
                place = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
                _finder.elsewhere.setdefault(text, place)
                return spec
        return None

    def _written(self, fullname: str, frame: FrameType) -> ModuleSpec | None:
        """Return a module in place of the one in which only the project's installation writes its version."""
        package, _, name = fullname.rpartition(".")
        is_own = any(map(is_users, map(str, getattr(sys.modules.get(package), "__path__", ()))))
        if name not in _VERSIONS or not is_own or is_guarded(frame.f_code.co_filename, frame.f_lineno):
            return None
        place = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        _finder.elsewhere.setdefault(f"{fullname}, which the installation writes, is not there: it says 0.0.0", place)
        return importlib.util.spec_from_file_location(fullname, Path(__file__).with_name("no_version.py"))

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        """Find the metadata of the project itself, which is not installed: its code may ask for its own version."""
        name = (context.name or "" if context is not None else "").lower().replace("-", "_")
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_filename in (__file__, importlib.metadata.__file__):
            frame = frame.f_back
        folders = (self._root, *map(Path, self._folders))
        is_own = any((folder / name / "__init__.py").is_file() for folder in folders) if name else False
        if is_own and frame is not None and is_users(frame.f_code.co_filename):
            place = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            _finder.elsewhere.setdefault(f"{name} is the project, which is not installed: its version is 0.0.0", place)
            yield _OwnDistribution(name)

    def _elsewhere(self, name: str, frame: FrameType) -> Iterator[str]:
        """Yield the only folder of the project with a module of this name that has what the importing line takes."""
        folders = [folder for folder in self._holding.get(name, ()) if _gives(folder, name, frame)]
        yield from map(str, folders if len(folders) == 1 else ())

    @cached_property
    def _holding(self) -> Mapping[str, Collection[Path]]:
        """The folders of the project that have a module or a package of Python's files, by its name."""
        return folders_of_modules(self._root)


def _gives(folder: Path, name: str, frame: FrameType) -> bool:
    """Return True if the module `name` in a folder has what the line that imports it takes from it."""
    path = frame.f_code.co_filename
    taken = [each.split(".") for each in _imported(Frame(path, frame.f_lineno, "")) if not each.endswith("*")]
    taken = [each for each in taken if each[0] == name]
    if taken == [[name]]:
        uses = re.findall(rf"(?<![\w.]){name}\.([A-Za-z]\w*)", "".join(linecache.getlines(path)))
        taken += [[name, each] for each in uses if each != "py"]
    return bool(taken) and all(_has(folder / name, each[1:]) for each in taken)


def _has(module: Path, names: Sequence[str]) -> bool:
    """Return True if a module has a module inside it, or the word in its text, of each of these names."""
    for name in names:
        if (module / name).is_dir() or (module / f"{name}.py").is_file():
            module /= name
            continue
        file = next((each for each in (module.with_suffix(".py"), module / "__init__.py") if each.is_file()), None)
        return file is not None and re.search(rf"\b{name}\b", file.read_text(errors="replace")) is not None
    return True


class _MissingFinder(MetaPathFinder):
    """Import hook behind all others: it finds what the files of a script import and nobody else has found."""

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> ModuleSpec | None:
        package = fullname.rpartition(".")[0]
        if package and not isinstance(sys.modules.get(package), _Module):
            return None  # an installed package of another version, or a file of the user's that is not there
        return _finder.stand_in(fullname, _asking())


def _asking() -> FrameType | None:
    """Return the frame of the import statement, if it is in a file of the user's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in _IMPORTING:
        frame = frame.f_back
    return frame if frame is not None and is_users(frame.f_code.co_filename) else None


def _behind_package(package: str) -> FrameType | None:
    """Return the frame of the import statement in a file of the user's that has this package import parts of itself."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (
        frame.f_code.co_filename in _IMPORTING or str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ):
        frame = frame.f_back
    return frame if frame is not None and is_users(frame.f_code.co_filename) else None


def _missing(error: ModuleNotFoundError) -> tuple[str, Frame] | None:
    """Return the missing module that a user's line imports, directly or indirectly; None if it is the user's own."""
    lines = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_code(frame.f_code)]
    users = [(code, line) for code, line in lines if is_users(code.co_filename)]
    if not users or not error.name:
        return None
    code, line = users[-1]
    frame = Frame(code.co_filename, line, code.co_name)
    if lines[-1] != users[-1]:  # an installed package needs another one
        name = next((name for name in _imported(frame) if name not in sys.modules), None)
    else:
        name = error.name.partition(".")[0]
        if name in sys.modules or importlib.util.find_spec(name):  # a compiled module that is not built yet
            spec = importlib.util.find_spec(name)
            origin = Path(spec.origin) if spec is not None and spec.origin else None
            is_own = origin is not None and is_users(str(origin)) and any(origin.parent.glob("*.pyx"))
            name = error.name if is_own else None
    return None if name is None else (name, frame)


def _failing(error: Exception) -> tuple[str, Frame] | None:
    """Return the innermost user module whose own code raised, and the line that imports it; None for the target."""
    frames = [frame for frame, _line in traceback.walk_tb(error.__traceback__) if is_users(frame.f_code.co_filename)]
    modules = [frame for frame in frames if frame.f_code.co_name == "<module>"]
    if len(modules) < _WITH_IMPORTER:
        return None
    importer = modules[-2]
    line = next((line for frame, line in traceback.walk_tb(error.__traceback__) if frame is importer), 0)
    return str(modules[-1].f_globals["__name__"]), Frame(importer.f_code.co_filename, line, "<module>")


def _where(error: Exception) -> str:
    """Return the line of the user's that a module of the user's fails at: nobody can install that module."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    path, number = next(place for place in reversed(lines) if is_users(place[0]))
    return f"The module is the project's own: it ends at {path}:{number}, when it is imported."


def _stands_in_for_extensions(error: Exception) -> bool:
    """Replace extensions that failed to compile at import by placeholders; False if no extension is to blame."""
    names = [frame.f_globals.get("__name__") for frame, _line in traceback.walk_tb(error.__traceback__)]
    if _finder.uncompiled or not {extensions.__name__, "torch.utils.cpp_extension"}.intersection(names):
        return False
    _finder.uncompiled = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"
    module: Any = sys.modules["torch.utils.cpp_extension"]
    module.load = module.load_inline = _extension
    return True


def _stand_in_for_what_is_not_compiled(module: Any) -> None:
    """Let a script load extensions that are not compiled: many have a way without them."""
    for function in (module.load, module.load_inline):
        setattr(module, function.__name__, _standing_in(function))


def _standing_in(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def load(*arguments: Any, **named: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        try:
            return function(*arguments, **named)
        except OSError as error:
            if not extensions.refused(error) or is_guarded(frame.f_code.co_filename, frame.f_lineno):
                raise
            _finder.uncompiled = f"{type(error).__name__}: {error}"
        return _extension(named.get("name") or arguments[0])

    return load


def _extension(name: str, *_arguments: object, **_named: object) -> _Absent:
    frame = sys._getframe(1)
    _finder.replaced.setdefault(name, Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
    _finder.failed[name] = _finder.uncompiled
    return _Absent(name)


def _is_code(code: CodeType) -> bool:
    return not code.co_filename.startswith("<frozen importlib") and "/importlib/" not in code.co_filename


def _imported(frame: Frame) -> Iterator[str]:
    """Yield dotted names of the modules that this line may import."""
    for node in statements_at(frame.path, frame.line):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_optional(frame: FrameType | None) -> bool:
    """Return True if a file of the user's that is importing, in `frame` or outside of it, can do without that."""
    while frame is not None:
        path, line = frame.f_code.co_filename, frame.f_lineno
        if is_users(path) and _imports_at(path, line) and is_guarded(path, line):
            return True
        frame = frame.f_back
    return False


def _imports_at(path: str, line: int) -> bool:
    """Return True if the line imports a module, by a statement or a function."""
    nodes = (node for node in statements_at(path, line) if isinstance(node, ast.Import | ast.ImportFrom))
    return next(nodes, None) is not None or "import_module" in linecache.getline(path, line)

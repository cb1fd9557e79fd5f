"""The import of a file once more, with placeholders for what its first import lacked."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from memlint.base.errors import MemlintError
from memlint.base.ownership import file_of, is_installed, is_memlint, is_users
from memlint.memory.records import Frame
from memlint.workloads.missing_modules import absent
from memlint.workloads.placeholders.absent_packages import record, shortened
from memlint.workloads.placeholders.finders import expect
from memlint.workloads.placeholders.import_lines import imported
from memlint.workloads.placeholders.uncompiled import stands_in_for_extensions

_WITH_IMPORTER = 2


def with_placeholders(load: Callable[[], ModuleType], target: Path) -> ModuleType:
    """Return the module that `load` imports, with placeholders for missing packages. Passes on any other exception.

    `target` is the analysed file: none of its classes may derive from a class of a missing package.
    """
    modules, record.target = set(sys.modules), str(target)
    record.importing += 1
    try:
        while True:
            try:
                return load()
            except Exception as error:
                if stands_in_for_extensions(error):
                    forget_users(modules)
                    continue
                broken = failing_package(error)
                missing = _missing(error) if isinstance(error, ModuleNotFoundError) else broken or _failing(error)
                if missing is None or missing[0] in record.replaced:
                    raise
                expect(())
                record.replaced.update([missing])
                if broken == missing:
                    stand_in_for_broken(missing[0], shortened(error))
                elif not isinstance(error, ModuleNotFoundError):
                    record.failed[missing[0]] = shortened(error)
                    record.remedies[missing[0]] = (isinstance(error, NameError) and absent(error)) or _where(error)
                forget_users(modules)
    finally:
        record.importing -= 1


def forget_users(modules: Iterable[str]) -> None:
    """Let the user's modules, except `modules`, be imported again, and packages register what is in them again."""
    for name in sys.modules.keys() - set(modules):
        if is_users(file_of(sys.modules[name]) or "<"):
            del sys.modules[name]
    for module in list(sys.modules.values()):
        is_torch = getattr(module, "__name__", "").partition(".")[0] == "torch"  # which warns where it is looked at
        if not is_torch and is_installed(file_of(module) or "<"):
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
        elif str(type(value).__module__).partition(".")[0] == module.__name__.partition(".")[0]:  # it may be a slot
            own = getattr(value, "__dict__", None)  # some objects have something of their own under every name
            yield from (each for each in own.values() if type(each) is dict) if type(own) is dict else ()


def _missing(error: ModuleNotFoundError) -> tuple[str, Frame] | None:
    """Return the missing module that a user's line imports, directly or indirectly; None if it is the user's own."""
    lines = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_code(frame.f_code)]
    users = [(code, line) for code, line in lines if is_users(code.co_filename)]
    if not users or not error.name:
        return None
    code, line = users[-1]
    frame = Frame(code.co_filename, line, code.co_name)
    if lines[-1] != users[-1]:  # an installed package needs another one
        name = next((name for name in imported(frame) if name not in sys.modules), None)
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


def failing_package(error: BaseException) -> tuple[str, Frame] | None:
    """Return the installed package that fails while a user's line imports it, and that line; None of another error.

    A package that lacks another one has that to be installed.
    """
    if isinstance(error, ModuleNotFoundError | MemlintError) or not isinstance(error, Exception):
        return None
    lines = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_code(frame.f_code)]
    users = [place for place, (frame, _) in enumerate(lines) if is_users(frame.f_code.co_filename)]
    behind = lines[users[-1] + 1 :] if users else []
    if not behind or behind[0][0].f_code.co_name != "<module>" or not is_installed(behind[0][0].f_code.co_filename):
        return None
    package = str(behind[0][0].f_globals["__name__"]).partition(".")[0]
    if package in sys.modules or package == "torch":
        return None
    frame, line = lines[users[-1]]
    return package, Frame(frame.f_code.co_filename, line, frame.f_code.co_name)


def stand_in_for_broken(package: str, reason: str) -> None:
    """Let placeholders stand for an installed package whose import fails for this `reason`, also for what it left."""
    expect(() if package in record.replaced else (package,))
    record.failed[package] = reason
    record.remedies[package] = (
        f"Install a version of {package}, or of what it imports, that fits what is installed, or run memlint in the "
        "project's environment."
    )
    for name in [each for each in sys.modules if each.startswith(f"{package}.")]:
        del sys.modules[name]


def _where(error: Exception) -> str:
    """Return the line of the user's that a module of the user's fails at: nobody can install that module."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    path, number = next(place for place in reversed(lines) if is_users(place[0]))
    return f"The module is the project's own: it ends at {path}:{number}, when it is imported."


def _is_code(code: CodeType) -> bool:
    """Return True for code that an import runs, and not for what finds and loads it, or waits for it to be loaded."""
    path = code.co_filename
    return not (path.startswith("<frozen importlib") or "/importlib/" in path or is_memlint(path))

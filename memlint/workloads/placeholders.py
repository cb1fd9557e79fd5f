"""Placeholders for packages that are not there: cv2 for drawing, wandb for logs, whatever the model itself never uses.

A file that cannot be imported because a package is missing is imported once more, with a placeholder in its place. A
placeholder may be imported, named in annotations and decorate what the file defines; its functions do nothing while
files are imported. Any other use of it, above all by the model, fails and says what to install.
"""

from __future__ import annotations

import ast
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NoReturn

from memlint.base.errors import WorkloadError
from memlint.base.ownership import is_users
from memlint.memory.records import Assumption, Frame
from memlint.workloads.missing_modules import remedy

_GUARDS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_LONGEST = 160
"""Letters of an error that is shown."""
_WITH_IMPORTER = 2
_USES = (
    "bool", "iter", "next", "len", "contains", "int", "float", "index", "add", "radd", "sub", "rsub", "mul",
    "rmul", "truediv", "rtruediv", "neg", "lt", "gt", "le", "ge", "setitem",
)  # fmt: skip
"""What Python does with an object, as special methods."""


def expect(names: Sequence[str]) -> None:
    """Let placeholders take the place of these packages, installed or not, in files that are imported from now on."""
    _finder.replaced.update(dict.fromkeys(names))
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def expect_in_script(names: Sequence[str]) -> None:
    """Let placeholders take the place of these packages in a script: its lines are all run while it is imported."""
    expect(names)
    _finder.importing += 1
    _finder.does_nothing = True


def with_placeholders(load: Callable[[], ModuleType], target: Path) -> ModuleType:
    """What `load` imports, with placeholders for packages that are missing. Raises what it raises otherwise.

    `target` is the file that is analysed: no class of its own may derive from what is missing.
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
                forget_users(modules)
    finally:
        _finder.importing -= 1


def forget_users(modules: Iterable[str]) -> None:
    """Let the user's modules beside `modules` be imported anew."""
    for name in sys.modules.keys() - set(modules):
        if is_users(getattr(sys.modules[name], "__file__", None) or "<"):
            del sys.modules[name]


def assumptions() -> list[Assumption]:
    """Which packages have placeholders, and where they were imported first."""
    what = "does nothing" if _finder.does_nothing else "fails when the model uses it"
    text = f"a placeholder that {what} takes the place of"
    return [Assumption(f"{text} {name}, {_reason(name, frame)}", frame) for name, frame in _finder.replaced.items()]


def _reason(name: str, frame: Frame | None) -> str:
    if name in _finder.failed:
        return f"which cannot be imported: {_finder.failed[name]}"
    return "which is not installed" if frame else "as --stub asks"


class AbsentError(WorkloadError):
    """Something of a package that is not there is used."""


class _Absent:
    """Something of a package that is not there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> _Absent:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self._name}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if not _finder.importing:
            self._fail()
        is_decorator = len(arguments) == 1 and not named and isinstance(arguments[0], FunctionType | type)
        return arguments[0] if is_decorator else _Absent(f"{self._name}()")

    def __getitem__(self, _key: object) -> _Absent:
        return self  # of an annotation

    def __or__(self, _other: object) -> _Absent:
        return self

    __ror__ = __or__

    def __enter__(self) -> _Absent:
        if not _finder.importing:
            self._fail()
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def __mro_entries__(self, _bases: object) -> tuple[type, ...]:
        frame = _asking()
        if not _finder.importing or (frame is not None and frame.f_code.co_filename == _finder.target):
            self._fail()
        return (type(self._name.rpartition(".")[2], (), {"__init__": lambda _self, *_, **__: self._fail()}),)

    def __instancecheck__(self, _value: object) -> bool:
        return False

    def _fail(self, *_arguments: object) -> NoReturn:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        package = self._name.partition(".")[0]
        reason = next((why for name, why in _finder.failed.items() if f"{self._name}.".startswith(f"{name}.")), None)
        missing = "is not there" if reason is None else f"cannot be imported: {reason}"
        parts = self._name.split(".")
        modules = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        hint = remedy(next((each for each in modules if each in sys.modules), package), _finder.target)
        if package in _finder.failed and reason == _finder.uncompiled:
            hint = f"Compile it, or see what the step takes on the host: memlint check {_finder.target} --gpu=cpu"
        raise AbsentError(
            f"{self._name} is used, and {package} {missing} ({frame.f_code.co_filename}:{frame.f_lineno})",
            hint,
        )


for _use in _USES:
    setattr(_Absent, f"__{_use}__", _Absent._fail)


class _Module(ModuleType):
    """A package or module that is not there."""

    def __getattr__(self, name: str) -> _Absent:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self.__name__}.{name}")


class _Finder(MetaPathFinder, Loader):
    """Gives the user's files a placeholder for each module of `replaced`, and where it was imported first."""

    def __init__(self) -> None:
        self.replaced: dict[str, Frame | None] = {}
        """By dotted name; None for those that were asked for."""
        self.failed: dict[str, str] = {}
        """What importing those raises that are there."""
        self.uncompiled = ""
        """Why extensions cannot be compiled here."""
        self.importing = 0
        self.does_nothing = False
        """Whether what is called once it is imported does nothing either."""
        self.target = ""

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> ModuleSpec | None:
        name = next((name for name in self.replaced if f"{fullname}.".startswith(f"{name}.")), None)
        if name is None:
            return None
        frame = _asking()
        if frame is None or (self.replaced[name] and _is_guarded(frame.f_code.co_filename, frame.f_lineno)):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


_finder = _Finder()


def _asking() -> FrameType | None:
    """The line that imports, if it is in a file of the user's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame if frame is not None and is_users(frame.f_code.co_filename) else None


def _missing(error: ModuleNotFoundError) -> tuple[str, Frame] | None:
    """What a line of the user's imports that is not there, or that needs what is not there; None where that is his."""
    lines = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_code(frame.f_code)]
    users = [(code, line) for code, line in lines if is_users(code.co_filename)]
    if not users or not error.name:
        return None
    code, line = users[-1]
    frame = Frame(code.co_filename, line, code.co_name)
    if lines[-1] != users[-1]:  # a package that is there wants another
        name = next((name for name in _imported(frame) if name not in sys.modules), None)
    else:
        name = error.name.partition(".")[0]
        if name in sys.modules or importlib.util.find_spec(name):  # compiled, and not yet
            spec = importlib.util.find_spec(name)
            origin = Path(spec.origin) if spec is not None and spec.origin else None
            is_own = origin is not None and is_users(str(origin)) and any(origin.parent.glob("*.pyx"))
            name = error.name if is_own else None
    return None if name is None else (name, frame)


def _failing(error: Exception) -> tuple[str, Frame] | None:
    """The innermost module of the user's whose own code raised, and the line that imports it; None for the target."""
    frames = [frame for frame, _line in traceback.walk_tb(error.__traceback__) if is_users(frame.f_code.co_filename)]
    modules = [frame for frame in frames if frame.f_code.co_name == "<module>"]
    if len(modules) < _WITH_IMPORTER:
        return None
    importer = modules[-2]
    line = next((line for frame, line in traceback.walk_tb(error.__traceback__) if frame is importer), 0)
    return str(modules[-1].f_globals["__name__"]), Frame(importer.f_code.co_filename, line, "<module>")


def _stands_in_for_extensions(error: Exception) -> bool:
    """Let extensions that are compiled on import, which failed here, be placeholders; False where none is to blame."""
    frames = [frame for frame, _line in traceback.walk_tb(error.__traceback__)]
    module = next((f.f_globals for f in frames if f.f_globals.get("__name__") == "torch.utils.cpp_extension"), None)
    if module is None or _finder.uncompiled:
        return False
    _finder.uncompiled = f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"
    module["load"] = module["load_inline"] = _extension
    return True


def _extension(name: str, *_arguments: object, **_named: object) -> _Absent:
    frame = sys._getframe(1)
    _finder.replaced.setdefault(name, Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
    _finder.failed[name] = _finder.uncompiled
    return _Absent(name)


def _is_code(code: CodeType) -> bool:
    return not code.co_filename.startswith("<frozen importlib") and "/importlib/" not in code.co_filename


def _imported(frame: Frame) -> Iterator[str]:
    """Dotted names of the modules that this line may import."""
    for node in _nodes_at(frame.path, frame.line):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_guarded(path: str, line: int) -> bool:
    """Whether the file does without what that line imports."""
    return any(
        isinstance(node, ast.Try)
        and line <= (node.body[-1].end_lineno or line)
        and any(handler.type is None or _GUARDS & _names(handler.type) for handler in node.handlers)
        for node in _nodes_at(path, line)
    )


def _nodes_at(path: str, line: int) -> Iterator[ast.stmt]:
    tree = ast.parse("".join(linecache.getlines(path)))
    return (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    )


def _names(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}

"""Objects of missing packages: what they let a program do with them."""

from __future__ import annotations

import ast
import dis
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FunctionType, GeneratorType, ModuleType
from typing import Any, NoReturn

import torch
from torch import nn

from memlint.base.guarded_imports import statements_at
from memlint.libraries.op_template import OP_TEMPLATE
from memlint.workloads.missing_modules import remedy
from memlint.workloads.pinned_versions import version_hint
from memlint.workloads.placeholders.absent_packages import AbsentError, missing, record
from memlint.workloads.placeholders.import_lines import asking, caller

_USES = (
    "bool", "iter", "next", "len", "contains", "int", "float", "index", "add", "radd", "sub", "rsub", "mul",
    "rmul", "truediv", "rtruediv", "neg", "lt", "gt", "le", "ge", "setitem",
)  # fmt: skip
"""Python's operations on an object, as special methods."""


_ERRORS = "Error", "Exception"
"""Ends of the names of errors."""


class Placeholder:
    """An object of a missing package."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        return _member(self._name, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Return what its package would, as far as a program may go on with it."""
        kind = record.kind_of(self._name)
        if kind is None and not self._may_be_called(arguments, named):
            self._fail()
        if len(arguments) == 1 and not named and _is_decorated(arguments[0]):
            return arguments[0]
        items = arguments[0] if arguments else None
        if kind == "progress" and isinstance(items, Iterable) and not isinstance(items, str):
            return _Progress(f"{self._name}()", items)
        return (_Zero if kind == "metric" else placeholder_for)(f"{self._name}()")

    def _may_be_called(self, arguments: Sequence[object], named: Mapping[str, object]) -> bool:
        """Return True while files are imported; in a script also with anything that is no tensor and has none."""
        if record.is_importing():
            return True
        is_gone = any(f"{self._name}.".startswith(f"{each}.") for each in (*record.gone, *record.failed))
        would_be_called = len(arguments) == 1 and isinstance(arguments[0], FunctionType | type)
        if is_gone or would_be_called or not record.in_script:
            return False
        if any(map(_has_tensors, (*arguments, *named.values()))):
            return False
        record.has_called = True
        return True

    def __getitem__(self, _key: object) -> Placeholder:
        return self  # of an annotation

    def __or__(self, _other: object) -> Placeholder:
        return self

    __ror__ = __or__

    def __iadd__(self, _more: object) -> Placeholder:
        """Go on while files are imported: a list of the package's gets more, as in `package.NAMES += ["own"]`."""
        if not record.is_importing():
            self._fail()
        return self

    def __enter__(self) -> Placeholder:
        if record.kind_of(self._name) is None and not self._may_be_called((), {}):
            self._fail()
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def __mro_entries__(self, _bases: object) -> tuple[type, ...]:
        if record.kind_of(self._name) is not None:
            made = placeholder_for(f"{self._name}()")
            members = {"__init__": lambda *_, **__: None, "__getattr__": lambda _, name: getattr(made, name)}
            return (type(self._name.rpartition(".")[2], (), members),)
        frame = asking()
        of_target = frame is not None and frame.f_code.co_filename == record.target
        if of_target or not (record.in_script or record.importing):
            self._fail()
        return (type(self._name.rpartition(".")[2], (), {"__new__": lambda _class, *_, **__: self._fail()}),)

    def __instancecheck__(self, _value: object) -> bool:
        return False

    __subclasscheck__ = __instancecheck__

    def _fail(self, *_arguments: object) -> NoReturn:
        error = self.absence()
        record.last_use = error
        raise error

    def absence(self) -> AbsentError:
        """Return the error for a use on the line that is running."""
        frame = caller()
        package = self._name.partition(".")[0]
        gone = next((name for name in record.gone if f"{self._name}.".startswith(f"{name}.")), "")
        if gone:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            return AbsentError(f"{gone} is used, but {record.gone[gone]} ({place})", version_hint(package, place))
        failed = next((name for name in record.failed if f"{self._name}.".startswith(f"{name}.")), "")
        reason = record.failed.get(failed)
        is_missing = "is not available" if reason is None else f"cannot be imported: {reason}"
        parts = self._name.split(".")
        modules = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        module = next((each for each in modules if each in sys.modules), package)
        missed = remedy(module, record.target or frame.f_code.co_filename, missing() if reason is None else ())
        hint = record.remedies.get(failed) or missed
        if package in record.failed and reason == record.uncompiled:
            hint = f"Compile it, or estimate the step on the host: memlint check {record.target} --gpu=cpu"
            if record.in_script:
                hint = (
                    f"Say what it gives, saves and takes: {OP_TEMPLATE.format(name=self._name)}; see docs/libraries.md."
                )
        error = AbsentError(
            f"{self._name} is used, but {package} {is_missing} ({frame.f_code.co_filename}:{frame.f_lineno})", hint
        )
        error.package = "" if reason else package
        return error


def _is_decorated(value: object) -> bool:
    """Return True for a function or class, but for one that makes a decorator of a function: `@run.register(Net)`."""
    if not isinstance(value, type):
        return isinstance(value, FunctionType)
    frame = caller()
    functions = (
        node
        for node in statements_at(frame.f_code.co_filename, frame.f_lineno + 1)
        if isinstance(node, ast.FunctionDef) and node.name != value.__name__
    )
    makers = (each for node in functions for each in node.decorator_list if isinstance(each, ast.Call))
    return all(each.lineno != frame.f_lineno for each in makers)


def _has_tensors(value: object, depth: int = 2) -> bool:
    """Return True for a tensor, a module, the parameters of one, and collections of these."""
    if isinstance(value, GeneratorType):
        return value.gi_code.co_filename == nn.Module.parameters.__code__.co_filename
    if depth and isinstance(value, list | tuple | dict):
        return any(_has_tensors(each, depth - 1) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, torch.Tensor | nn.Module)


for _use in _USES:
    setattr(Placeholder, f"__{_use}__", Placeholder._fail)


class _Quiet(Placeholder):
    """An object of a package that no tensor passes through: a logger, a plot, a client of a cloud."""

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return 0

    def __contains__(self, _item: object) -> bool:
        return False

    def __iter__(self) -> Iterator[Placeholder]:
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

    def _same(self, *_arguments: object) -> Placeholder:
        return self

    def _never(self, *_arguments: object) -> bool:
        return False

    def __add__(self, other: Any) -> Any:
        return other if isinstance(other, str) else self  # what it would colour, or write to a file

    __radd__ = __add__


for _use in ("sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg"):
    setattr(_Pliant, f"__{_use}__", _Pliant._same)
for _use in ("lt", "gt", "le", "ge"):
    setattr(_Pliant, f"__{_use}__", _Pliant._never)


class _Progress(_Quiet):
    """A progress bar, or what reads ahead: it gives what it was made for."""

    def __init__(self, name: str, items: Iterable[Any]) -> None:
        super().__init__(name)
        self._items: Any = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __next__(self) -> Any:
        return next(self._items)

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
for _kind in (Placeholder, _Quiet, _Pliant, _Progress, _Zero):
    _kind.__name__ = _kind.__qualname__ = "PlaceholderOfMissingPackage"  # as errors of PyTorch and Python name it


def placeholder_for(name: str) -> Placeholder:
    """Make the object of a missing package that has this dotted name."""
    if record.is_quiet:
        return _Pliant(name)
    return (Placeholder if record.kind_of(name) is None else _Quiet)(name)


def _member(owner: str, name: str) -> object:
    """Return what a missing package has under a name; an error of its own can be caught, and nothing raises it."""
    if name.startswith("__") and name.endswith("__"):
        error = AttributeError(name)
        if name == "__version__":  # nobody knows it, and a program may compare it
            error.add_note(Placeholder(owner).absence().hint)
        raise error
    if name.endswith(_ERRORS):
        return type(name, (Exception,), {"__module__": owner})
    return placeholder_for(f"{owner}.{name}")


class PlaceholderModule(ModuleType):
    """A missing package or module."""

    def __getattr__(self, name: str) -> object:
        return _member(self.__name__, name)


def is_placeholder(value: object) -> bool:
    """Return True for an object of a missing package."""
    return issubclass(type(value), Placeholder)


def stand_in_for_name(name: str, reason: str, *, is_quiet: bool = False) -> object:
    """Return a placeholder for a name that an installed package does not have.

    With `is_quiet` it does nothing; else it fails when it is used, for this `reason`.
    """
    if is_quiet:
        record.quiet.add(name)
    record.gone[name] = reason
    return placeholder_for(name)

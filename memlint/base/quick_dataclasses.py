"""Dataclasses of memlint, made in a quarter of the time: hundreds of them are made before a command begins.

Python writes, compiles and runs the text of six functions for each frozen dataclass. Here that is only `__init__`; the
others are closures over the names of the fields, and do the same.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any

_WRITTEN = frozenset(("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__"))
_OF_OTHERS = ("InitVar", "KW_ONLY")
_dataclass = dataclasses.dataclass


class _Factory:
    """Stands for a default that is made anew for each object."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


@contextmanager
def quick_dataclasses() -> Iterator[None]:
    """Make frozen dataclasses of memlint's modules that are imported inside the block quickly.

    Since 3.13 Python compiles the functions of a class in one text, and has no need of this.
    """
    if sys.version_info >= (3, 13):
        yield
        return
    dataclasses.dataclass = _quick
    try:
        yield
    finally:
        dataclasses.dataclass = _dataclass


def _quick(cls: type | None = None, /, **options: Any) -> Any:
    if cls is None:
        return lambda cls: _quick(cls, **options)
    if not cls.__module__.startswith("memlint") or not _is_plain(cls, options):
        return _dataclass(cls, **options)
    made: Any = _dataclass(cls, init=False, repr=False, eq=False, slots=options.get("slots", False))
    own = dataclasses.fields(made)
    names = frozenset(field.name for field in own)
    made.__dataclass_params__.frozen = made.__dataclass_params__.eq = True
    functions = {
        "__init__": _init(made, own),
        "__repr__": _repr([field.name for field in own if field.repr]),
        **_comparison([field.name for field in own if field.compare]),
        **_refusals(made, names),
    }
    if options.get("slots"):
        functions |= _state([field.name for field in own])
    for name, function in functions.items():
        function.__name__, function.__qualname__ = name, f"{made.__qualname__}.{name}"
        setattr(made, name, function)
    return made


def _is_plain(cls: type, options: Mapping[str, Any]) -> bool:
    """Return True if it is frozen and has nothing that is seldom used: then the functions here do the same."""
    own = vars(cls)
    fields = [each for each in own.values() if isinstance(each, dataclasses.Field)]
    return (
        options.get("frozen") is True
        and options.keys() <= {"frozen", "slots"}
        and bool(own.get("__doc__"))
        and _WRITTEN.isdisjoint(own)
        and not any(map(dataclasses.is_dataclass, cls.__bases__))
        and not any(word in str(each) for each in cls.__annotations__.values() for word in _OF_OTHERS)
        and all(each.init and each.hash is None and each.kw_only is not True for each in fields)
    )


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> Callable[..., None]:
    parameters, lines, known = ["self"], [], {"_set": object.__setattr__, "_FACTORY": _FACTORY}
    for field in fields:
        name, value = field.name, field.name
        if field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_FACTORY")
            value = f"_make_{name}() if {name} is _FACTORY else {name}"
        else:
            parameters.append(name)
        lines.append(f" _set(self, {name!r}, {value})\n")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()\n")
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(lines) or ' pass'}", known)
    init: Any = known["__init__"]
    init.__annotations__ = {**{field.name: field.type for field in fields}, "return": None}
    return init  # type: ignore[no-any-return]


def _repr(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def shown(self: Any) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({', '.join(values)})"

    return shown


def _comparison(names: list[str]) -> dict[str, Callable[..., Any]]:
    values: Callable[[Any], object] = attrgetter(*names) if len(names) > 1 else lambda each: _each(each, names)

    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": equal, "__hash__": hashed}


def _each(made: Any, names: list[str]) -> tuple[object, ...]:
    return tuple(getattr(made, name) for name in names)


def _refusals(cls: type[Any], names: frozenset[str]) -> dict[str, Callable[..., None]]:
    def assign(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": assign, "__delattr__": delete}


def _state(names: list[str]) -> dict[str, Callable[..., Any]]:
    """Return what pickles the fields of an object with slots, whose attributes cannot be set."""

    def get(self: Any) -> list[object]:
        return [getattr(self, name) for name in names]

    def restore(self: Any, state: list[object]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": get, "__setstate__": restore}

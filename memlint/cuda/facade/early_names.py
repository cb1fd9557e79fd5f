"""Replacement of PyTorch functions in modules that imported them before a device was simulated.

A module imported earlier may have `from torch import zeros`, or a function of PyTorch as a default, in a table, in a
class or in a `functools.partial`. A function that is replaced in PyTorch is replaced there too, and restored at the
end.
"""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from memlint.base.patching import Patch, patched

_searched: dict[str, ModuleType] = {}
"""Modules by name whose holders are known."""
_seen: dict[str, Any] = {}
"""`sys.modules` when they were last searched: to compare two dictionaries is faster than to look at each name."""
_left: dict[str, Any] = {}
"""Those of them whose holders were not known."""
_known: set[tuple[int, str]] = set()
"""Attributes that were replaced so far: `id` of the owner and name."""
_holders: list[Any] = []
"""Objects that hold a replaced function: namespaces, tables, classes, functions, partials."""
_TABLES = frozenset({dict, list, partial})
_WITHOUT = sys.stdlib_module_names | {"memlint"}
"""Packages in which nothing is replaced: Python's know no PyTorch, and memlint's keep its functions on purpose."""


@contextmanager
def patched_everywhere(patches: Sequence[Patch]) -> Iterator[None]:
    """Replace attributes inside the block, and replaced functions in every module that holds them."""
    pairs = [(vars(owner).get(name), value) for owner, name, value in patches]
    pairs = [(before, value) for before, value in pairs if callable(before) and callable(value)]
    names = {(id(owner), name) for owner, name, _ in patches}
    if not names <= _known:  # new names, for which no module has been searched yet
        _known.update(names)
        _searched.clear()
        _seen.clear()
    with patched(patches):
        exchange(dict(pairs))
        try:
            yield
        finally:
            exchange({value: before for before, value in pairs})


def exchange(replacements: Mapping[Any, Any]) -> None:
    """Replace functions wherever modules hold them."""
    kinds = frozenset({*map(type, replacements), staticmethod})
    for holder in _holders:
        _exchange_in(holder, replacements, kinds)
    for name, module in _not_searched():
        if not isinstance(module, ModuleType):
            continue
        package = name.partition(".")[0]
        if package not in _WITHOUT:
            _holders.extend(each for each in _parts(module) if _exchange_in(each, replacements, kinds))
        spec = getattr(module, "__spec__", None)  # notebooks have none, and neither have modules compiled into PyTorch
        is_whole = package == "torch" if spec is None else not getattr(spec, "_initializing", False)
        if is_whole and name != "__main__":
            _searched[name] = module


def _not_searched() -> list[tuple[str, Any]]:
    """Return what is imported and whose holders are not known, by name."""
    modules = sys.modules.copy()
    left = modules if modules != _seen else _left.copy()
    if left is modules:
        _seen.clear()
        _seen.update(modules)
    _left.clear()
    _left.update((name, module) for name, module in left.items() if _searched.get(name) is not module)
    return list(_left.items())


def _parts(module: ModuleType) -> Iterator[Any]:
    """Yield a module's namespace and, except for PyTorch's modules, the objects in it that may hold functions."""
    yield vars(module)
    if module.__name__.partition(".")[0] == "torch":  # PyTorch finds functions in its tables by identity
        return
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield value
            yield from (each for each in vars(value).values() if type(each) is FunctionType and _has_defaults(each))
        elif type(value) in _TABLES or (type(value) is FunctionType and _has_defaults(value)):
            yield value


def _has_defaults(function: FunctionType) -> bool:
    return function.__defaults__ is not None or function.__kwdefaults__ is not None


def _exchange_in(holder: Any, replacements: Mapping[Any, Any], kinds: Collection[type]) -> bool:
    """Replace functions, which are of `kinds`, in one holder; return True if any was there.

    Most values are of other kinds, or are compared by identity. (`id` would cost far more: a process that records what
    it reads is told of each call.)
    """
    kind = type(holder)
    if kind is FunctionType:
        positional, named = holder.__defaults__ or (), holder.__kwdefaults__ or {}
        is_there = any(type(each) in kinds and each in replacements for each in (*positional, *named.values()))
        if is_there:
            holder.__defaults__ = tuple(_new(each, replacements, kinds) for each in positional)
            holder.__kwdefaults__ = {name: _new(each, replacements, kinds) for name, each in named.items()}
        return is_there
    if kind is partial:
        function = _new(holder.func, replacements, kinds)
        is_there = function is not holder.func
        if is_there:
            holder.__setstate__((function, holder.args, holder.keywords, vars(holder)))
        return is_there
    items = enumerate(holder) if kind is list else (holder if kind is dict else vars(holder)).items()
    values = [
        (key, value)
        for key, value in items
        if (kind := type(value)) in kinds
        and (value in replacements if kind is not staticmethod else _holds(value, replacements, kinds))
    ]
    for key, value in values:
        function = replacements[value.__func__ if type(value) is staticmethod else value]
        if isinstance(holder, type):  # a plain function would become a method
            setattr(holder, str(key), staticmethod(function))
        else:
            holder[key] = function
    return bool(values)


def _holds(method: Any, replacements: Mapping[Any, Any], kinds: Collection[type]) -> bool:
    """Return True if a staticmethod is of a function that is replaced; others may have no hash."""
    return type(method.__func__) in kinds and method.__func__ in replacements


def _new(value: Any, replacements: Mapping[Any, Any], kinds: Collection[type]) -> Any:
    return replacements[value] if type(value) in kinds and value in replacements else value

"""Replacement of PyTorch functions in modules that imported them before a device was simulated.

A module imported earlier may have `from torch import zeros`, or a function of PyTorch as a default, in a table, in a
class or in a `functools.partial`. A function that is replaced in PyTorch is replaced there too, and restored at the
end.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
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
        exchange({id(before): value for before, value in pairs})
        try:
            yield
        finally:
            exchange({id(value): before for before, value in pairs})


def exchange(replacements: Mapping[int, Any]) -> None:
    """Replace functions, given by their `id`, wherever modules hold them."""
    for holder in _holders:
        _exchange_in(holder, replacements)
    for name, module in _not_searched():
        if not isinstance(module, ModuleType):
            continue
        package = name.partition(".")[0]
        if package != "memlint":  # memlint keeps PyTorch's own functions on purpose
            _holders.extend(each for each in _parts(module) if _exchange_in(each, replacements))
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
            yield from (each for each in vars(value).values() if type(each) is FunctionType)
        elif type(value) in (dict, list, partial, FunctionType):
            yield value


def _exchange_in(holder: Any, replacements: Mapping[int, Any]) -> bool:
    """Replace functions in one holder; return True if any was there."""

    def new(value: Any) -> Any:
        return replacements.get(id(value), value)

    kind = type(holder)
    if kind is FunctionType:
        positional, named = holder.__defaults__ or (), holder.__kwdefaults__ or {}
        is_there = any(id(each) in replacements for each in (*positional, *named.values()))
        if is_there:
            holder.__defaults__ = tuple(map(new, positional))
            holder.__kwdefaults__ = {name: new(value) for name, value in named.items()}
        return is_there
    if kind is partial:
        is_there = id(holder.func) in replacements
        if is_there:
            holder.__setstate__((new(holder.func), holder.args, holder.keywords, vars(holder)))
        return is_there
    items = enumerate(holder) if kind is list else (holder if kind is dict else vars(holder)).items()
    values = [(key, value.__func__ if type(value) is staticmethod else value) for key, value in items]
    values = [(key, new(value)) for key, value in values if id(value) in replacements]
    for key, value in values:
        if isinstance(holder, type):  # a plain function would become a method
            setattr(holder, str(key), staticmethod(value))
        else:
            holder[key] = value
    return bool(values)

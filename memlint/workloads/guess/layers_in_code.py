"""A sketch of a model that cannot be built: the layers that its constructor's code creates."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from memlint.source.text import dotted_name
from memlint.source.trees import walk
from memlint.workloads.constructor_values import parameters, plain_value
from memlint.workloads.receiving_layers import ENTRIES, code_of

_DEPTH = 3
"""Depth to which classes of the file within others are followed."""
_SIZES = {"in_channels": 3, "num_embeddings": 1000, "in_features": 16, "input_size": 16}
"""Values for layer arguments that are unknown; no input depends on the other sizes of a layer."""


def layers_in_constructor(kind: type) -> nn.Module:
    """Make a module without memory from the layers that the constructor of `kind` creates, in the order of its code."""
    return nn.ModuleList(_layers(kind, _DEPTH, {}))


def _layers(kind: Any, depth: int, values: Mapping[str, object]) -> Iterator[nn.Module]:
    """Yield the layers of a class whose constructor receives `values`."""
    constructor = kind.__init__
    tree = code_of(constructor)
    names = vars(sys.modules.get(constructor.__module__, ast))
    taken = {n: each.replace(default=values.get(n, each.default)) for n, each in parameters(constructor).items()}
    calls = {id(each.func): each for each in walk(tree) if isinstance(each, ast.Call)}
    named = [each for each in walk(tree) if isinstance(each, ast.Name | ast.Attribute)]
    for node in sorted(named, key=lambda each: (each.lineno, each.col_offset)):
        value = _meaning(node, names)
        if not (isinstance(value, type) and issubclass(value, nn.Module)):
            continue
        arguments = _arguments(value, calls.get(id(node)), taken, names)
        if issubclass(value, ENTRIES) and id(node) in calls:
            yield from _created_layer(value, arguments)
        elif depth and value is not kind and not value.__module__.startswith("torch."):
            yield from _layers(value, depth - 1, arguments)


def _meaning(node: ast.expr, names: Mapping[str, Any]) -> object:
    first, *rest = dotted_name(node).split(".")
    value: object = names.get(first)
    for name in rest:
        value = getattr(value, name, None)
    return value


def _taken(kind: type[nn.Module]) -> dict[str, inspect.Parameter]:
    own = parameters(nn.RNNBase.__init__ if issubclass(kind, nn.RNNBase) else kind.__init__)
    return {name: each for name, each in own.items() if name not in ("self", "mode")}


def _arguments(
    kind: type[nn.Module], call: ast.Call | None, taken: Mapping[str, inspect.Parameter], names: Mapping[str, Any]
) -> dict[str, object]:
    """Return the arguments that the call passes to a class, as far as they are known."""
    given = dict(zip(_taken(kind), call.args, strict=False)) if call is not None else {}
    for keyword in call.keywords if call is not None else ():
        given |= {keyword.arg: keyword.value} if keyword.arg is not None else {}
    values = {name: _value(node, taken, names) for name, node in given.items()}
    return {name: value for name, value in values.items() if value is not None}


def _created_layer(kind: type[nn.Module], arguments: Mapping[str, object]) -> Iterator[nn.Module]:
    """Create a layer, with numbers for unknown arguments; nothing if these contradict each other."""
    required = [name for name, each in _taken(kind).items() if each.default is each.empty]
    sizes = {name: 1 if "head" in name else _SIZES.get(name, 8) for name in required}
    with suppress(Exception), torch.device("meta"):
        yield kind(**{**sizes, **arguments})


def _value(node: ast.expr, taken: Mapping[str, inspect.Parameter], names: Mapping[str, Any]) -> object:
    """Return a literal, a constant of the file, a default of the constructor or the usual value for its name."""
    with suppress(ValueError):
        value: object = ast.literal_eval(node)
        return value
    if not isinstance(node, ast.Name):
        return None
    parameter = taken.get(node.id)
    if parameter is None:
        return value if isinstance(value := names.get(node.id), int | tuple) else None
    has_default = isinstance(parameter.default, int | tuple)
    return parameter.default if has_default else plain_value(parameter)

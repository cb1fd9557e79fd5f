"""The layer that the code of `forward` passes a parameter to, and lists that it iterates together with its layers."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from torch import nn

from memlint.accelerator.private import BatchNorm, Convolution, InstanceNorm
from memlint.workloads.constructor_values import parameters

ENTRIES = (
    *(nn.Embedding, nn.EmbeddingBag, Convolution, nn.Linear, nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.Transformer),
    *(nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer),
    *(BatchNorm, InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm),
)
"""Kinds of layer that determine the form of their input."""
_DEPTH = 6
"""Depth to which nested modules are followed."""
_SAME = frozenset(
    {"to", "float", "type_as", "contiguous", "transpose", "permute", "movedim", "clone", "detach", "masked_fill"}
)
"""Methods whose result goes into a layer in place of the tensor."""


def receiving_layer(model: nn.Module, name: str) -> nn.Module | None:
    """Return the first layer that determines its input and gets `forward`'s parameter `name` unchanged.

    None if that is unknown: the code computes with the parameter, or passes it to a function.
    """
    return _receiving_layer(model, name, _DEPTH)


def receiving_layers_of_entries(model: nn.Module, name: str) -> tuple[nn.Module, ...]:
    """Return the layers that get the entries of the parameter `name`, a list, in order; empty without any.

    `for place, entry in enumerate(name)` passes them to `self.layers[place]`, or `zip(name, self.layers)` to `layer`.
    """
    for loop in ast.walk(forward_code(type(model))):
        if not isinstance(loop, ast.For | ast.comprehension):
            continue
        match loop:
            case ast.For(
                target=ast.Tuple(elts=[ast.Name(id=place), ast.Name(id=entry)]),
                iter=ast.Call(func=ast.Name(id="enumerate"), args=[ast.Name(id=each)]),
            ) if each == name:
                found = (_indexed(model, call.func, place) for call in _calls(loop) if _gives(call, entry))
                layers = next((layers for layers in found if layers is not None), None)
            case ast.For(iter=ast.Call(func=ast.Name(id="zip"), args=both)):
                others = [each for each in both if not (isinstance(each, ast.Name) and each.id == name)]
                layers = _module(model, others[0]) if len(others) == len(both) - 1 == 1 else None
            case _:
                layers = None
        if isinstance(layers, nn.ModuleList):
            return tuple(layers)
    return ()


def first_receiving_layer(module: nn.Module) -> nn.Module | None:
    """Return the layer that gets the input of `module`."""
    names = list(parameters(module.forward))
    return module if isinstance(module, ENTRIES) else receiving_layer(module, names[0]) if names else None


def forward_code(kind: type[nn.Module]) -> ast.Module:
    """Return the code of `forward`; empty if the source is not available."""
    return code_of(inspect.unwrap(kind.forward))


@lru_cache(maxsize=256)
def code_of(function: Callable[..., Any]) -> ast.Module:
    """Return the code of a function or method; empty if the source is not available."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])


def _receiving_layer(module: nn.Module, name: str, depth: int) -> nn.Module | None:
    if isinstance(module, ENTRIES):
        return module
    if isinstance(module, nn.Sequential):
        layers = (_receiving_layer(each, "input", depth - 1) for each in module)
        return next((layer for layer in layers if layer is not None), None)
    found = passed_to(module, forward_code(type(module)), name) if depth else ()
    layers = (_receiving_layer(inner, own, depth - 1) for inner, own in found)
    return next((layer for layer in layers if layer is not None), None)


def passed_to(
    module: nn.Module, code: ast.Module, name: str, same: frozenset[str] = _SAME
) -> Iterator[tuple[nn.Module, str]]:
    """Yield the parts of `module` that its `code` passes the parameter `name` to, with the names that it has there.

    The results of methods of `same` count as the parameter itself.
    """
    end = last_line(code, name)
    for call in _calls(code):
        argument = _gives(call, name, same) if call.lineno <= end else None
        inner = _module(module, call.func, code) if argument else None
        taken = list(parameters(inner.forward)) if inner is not None else []
        if inner is not None and argument is not None and (taken or isinstance(inner, ENTRIES)):
            yield inner, argument.own or next(iter(taken[argument.position :]), "")


def last_line(code: ast.Module, name: str) -> float:
    """Return the line that assigns another value to the variable `name`: after it the variable is not the parameter."""
    stores = (
        each.end_lineno or each.lineno
        for each in ast.walk(code)
        if isinstance(each, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For)
        and any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(each))
        and not (isinstance(each, ast.Assign) and _is(each.value, name))
    )
    return min(stores, default=math.inf)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield calls in the order of the code; of two on a line the inner one first."""
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    yield from sorted(calls, key=lambda call: (call.lineno, -call.col_offset))


class _Argument(NamedTuple):
    """A call's argument: its position, or the name of its parameter."""

    position: int
    own: str | None


def _gives(call: ast.Call, name: str, same: frozenset[str] = _SAME) -> _Argument | None:
    for index, each in enumerate(call.args):
        if _is(each, name, same):
            return _Argument(index, None)
    return next((_Argument(0, each.arg) for each in call.keywords if each.arg and _is(each.value, name, same)), None)


def _is(node: ast.expr, name: str, same: frozenset[str] = _SAME) -> bool:
    """Return True if an expression is the variable `name`, or what methods of `same` give of it."""
    match node:
        case ast.Name(id=own):
            return own == name
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in same:
            return _is(value, name, same)
    return False


def _module(model: nn.Module, node: ast.expr, code: ast.Module | None = None) -> nn.Module | None:
    """Return the part of `model` that `self.blocks[0].linear` names, or `block` in `code`'s loop over `self.blocks`."""
    value: Any = None
    match node:
        case ast.Name(id="self"):
            value = model
        case ast.Name(id=name) if code is not None:
            loops = (each for each in ast.walk(code) if isinstance(each, ast.For))
            layers = next((_module(model, _gone_over(loop)) for loop in loops if _goes_over(loop, name)), None)
            value = next(iter(layers), None) if isinstance(layers, nn.ModuleList) else None
        case ast.Attribute(value=inner, attr=attr):
            value = getattr(_module(model, inner), attr, None)
        case ast.Subscript(value=inner, slice=ast.Constant(value=int(place))):
            layers = _module(model, inner)
            is_there = isinstance(layers, nn.ModuleList | nn.Sequential) and -len(layers) <= place < len(layers)
            value = layers[place] if is_there and isinstance(layers, nn.ModuleList | nn.Sequential) else None
    return value if isinstance(value, nn.Module) else None


def _goes_over(loop: ast.For, name: str) -> bool:
    """Return True if the variable of a loop, or the second one with `enumerate`, is `name`."""
    match loop.target:
        case ast.Name(id=own) | ast.Tuple(elts=[_, ast.Name(id=own)]):
            return own == name
    return False


def _gone_over(loop: ast.For) -> ast.expr:
    """Return the iterable of a loop, inside `enumerate` if there is one."""
    match loop.iter:
        case ast.Call(func=ast.Name(id="enumerate"), args=[each]) if not isinstance(loop.target, ast.Name):
            return each
    return loop.iter


def _indexed(model: nn.Module, node: ast.expr, place: str) -> nn.Module | None:
    """Return the list of modules that `self.layers[place]` indexes."""
    match node:
        case ast.Subscript(value=inner, slice=ast.Name(id=own)) if own == place:
            return _module(model, inner)
    return None

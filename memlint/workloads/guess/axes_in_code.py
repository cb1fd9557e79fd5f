"""Names of an input's dimensions in the code of `forward`: `b, t, c = x.shape`, `"b t c -> (b t) c"` and comments."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from torch import nn

from memlint.source.text import dotted_name
from memlint.workloads.receiving_layers import code_of, forward_code, last_line, passed_to

_DEPTH = 6
"""Depth to which nested modules and methods are followed."""
_SAME = frozenset({"to", "float", "type_as", "contiguous", "clone", "detach"})
"""Methods whose result has the dimensions of the tensor."""
_OF_EINOPS = ("rearrange", "reduce", "repeat")
_AXIS = re.compile(r"\([^()]*\)|[^\s()]+")
_WORD = re.compile(r"[A-Za-z]\w*")
_BATCHES = frozenset({"b", "bs", "bsz", "bz", "bsize", "batch", "batch_size", "nb", "b_"})
_COUNTS = frozenset({"n", "num", "_"})
"""Names that the batch has in first place."""


def axes(model: nn.Module, name: str) -> tuple[str, ...]:
    """Return the names of the dimensions of the parameter `name` of `forward`, the batch first; empty if unknown.

    Modules and methods that get the parameter unchanged may name them.
    """
    found = _axes(model, forward_code(type(model)), name, _DEPTH)
    names = tuple(each.lower() for each in found)
    is_batch_first = bool(names) and (names[0] in _BATCHES or (names[0] in _COUNTS and _BATCHES.isdisjoint(names)))
    return names if is_batch_first and len(names) > 1 else ()


def comments(model: nn.Module, name: str) -> str:
    """Return the comments in `forward` before it changes the parameter `name`."""
    with suppress(OSError, TypeError):
        lines = inspect.getsource(inspect.unwrap(type(model).forward)).splitlines()
        end = min(last_line(forward_code(type(model)), name) - 1, len(lines))
        return "\n".join(line.partition("#")[2] for line in lines[: int(end)])
    return ""


def _axes(module: nn.Module, code: ast.Module, name: str, depth: int) -> tuple[str, ...]:
    if depth == 0:
        return ()
    end = last_line(code, name)
    for node in _always_run(code):
        if node.lineno <= end and (found := _taken_apart(node, name)):
            return found
    for call in (each for each in ast.walk(code) if isinstance(each, ast.Call) and each.lineno <= end):
        function = getattr(type(module), dotted_name(call.func).removeprefix("self."), None)
        place = next((n for n, each in enumerate(call.args) if isinstance(each, ast.Name) and each.id == name), None)
        if place is not None and dotted_name(call.func).startswith("self.") and inspect.isfunction(function):
            taken = [*inspect.signature(function).parameters][1:]
            own = next(iter(taken[place:]), "")
            if found := _axes(module, code_of(function), own, depth - 1):
                return found
    for inner, own in passed_to(module, code, name, _SAME):
        first = next(iter(inner), inner) if isinstance(inner, nn.Sequential) else inner
        pattern = getattr(first, "pattern", None)  # a Rearrange of einops
        if found := _of_pattern(pattern) if isinstance(pattern, str) else _of_module(first, own, depth):
            return found
    return ()


def _of_module(module: nn.Module, name: str, depth: int) -> tuple[str, ...]:
    own = name if name in inspect.signature(module.forward).parameters else ""
    is_torch = type(module).__module__.startswith("torch.")
    return () if is_torch or not own else _axes(module, forward_code(type(module)), own, depth - 1)


def _always_run(code: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a function that do not depend on a condition, in order."""
    body: Iterable[ast.AST] = getattr(code, "body", ())
    for node in body:
        if isinstance(node, ast.With | ast.FunctionDef):
            yield from _always_run(node)
        elif isinstance(node, ast.stmt) and not isinstance(node, ast.If | ast.For | ast.While | ast.Try):
            yield node


def _taken_apart(node: ast.stmt, name: str) -> tuple[str, ...]:
    """Return the names that a statement gives to all dimensions of the variable `name`."""
    match node:
        case ast.Assign(
            targets=[ast.Tuple(elts=names)],
            value=ast.Attribute(value=ast.Name(id=own), attr="shape")
            | ast.Call(func=ast.Attribute(value=ast.Name(id=own), attr="size"), args=[]),
        ) if own == name and all(isinstance(each, ast.Name) for each in names):
            return tuple(each.id for each in names if isinstance(each, ast.Name))
    for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
        match call.args:
            case [ast.Name(id=own), ast.Constant(value=str(pattern)), *_] if own == name:
                if dotted_name(call.func).rpartition(".")[2] in _OF_EINOPS:
                    return _of_pattern(pattern)
    return ()


def _of_pattern(pattern: str) -> tuple[str, ...]:
    """Return the names on the left of einops' arrow: of composed ones the first, as in `(h p1)`."""
    left, arrow, _ = pattern.partition("->")
    if not arrow or "..." in left:
        return ()
    words = [_WORD.search(each) for each in _AXIS.findall(left)]
    return tuple("_" if word is None else word[0] for word in words)

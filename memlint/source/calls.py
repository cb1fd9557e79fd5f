"""Parts of a call in the text: its arguments, and the chain of methods it belongs to."""

import ast
from collections.abc import Collection, Iterator

from memlint.source.text import dotted_name

_FACTORIES = frozenset({"empty", "ones", "rand", "randn", "zeros"})


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """Return the argument called `name`, or the one at `position` from 0; None if it is not written."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is None or len(call.args) <= position:
        return None
    return None if any(isinstance(value, ast.Starred) for value in call.args[: position + 1]) else call.args[position]


def unpacks(call: ast.Call) -> bool:
    """Return True if it passes arguments that are not written there, with `*` or `**`."""
    return any(isinstance(value, ast.Starred) for value in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    )


def is_literal(node: ast.expr | None, value: object) -> bool:
    """Return True if it is written as this constant; `1` is not `True`."""
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def called(node: ast.AST | None) -> str:
    """Return `cuda` for `model.to("cpu").cuda()`, `load` for `torch.load(f)`; empty if it is no call of a name."""
    return last_name(node.func) if isinstance(node, ast.Call) else ""


def last_name(function: ast.expr) -> str:
    """Return `backward` for `self.scaler.scale(loss).backward`."""
    return function.attr if isinstance(function, ast.Attribute) else dotted_name(function)


def chain(node: ast.expr, methods: Collection[str]) -> Iterator[ast.Call]:
    """Yield the calls of these methods that `node` ends with, the last first: `b()` and `a()` of `x().a().b()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
        yield node
        node = node.func.value


def before(node: ast.expr, methods: Collection[str]) -> ast.expr:
    """Return the object on which the methods of `chain` are called: `x()` for `x().a().b()`."""
    for call in chain(node, methods):
        node = call.func.value  # type: ignore[attr-defined]
    return node


def constant_shape(call: ast.Call) -> tuple[int, ...] | None:
    """Return the literal shape with which a factory such as `torch.zeros` is called; None if it is not literal."""
    if called(call) not in _FACTORIES:
        return None
    size = argument(call, "size")
    sizes = [size] if size is not None else call.args
    if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List):
        sizes = sizes[0].elts
    lengths = [node.value for node in sizes if isinstance(node, ast.Constant) and type(node.value) is int]
    return tuple(lengths) if sizes and len(lengths) == len(sizes) else None

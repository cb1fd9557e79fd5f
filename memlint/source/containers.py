"""Values that the iterations of a loop put into lists and dictionaries that outlive them."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from memlint.source.calls import called
from memlint.source.scopes import Loop, Position, Scope, holders, position
from memlint.source.taint import Value, values_of
from memlint.source.text import dotted_name, named

_PUTS = frozenset({"append", "extend", "appendleft"})
_HARMLESS = frozenset({*_PUTS, "clear", "pop"})
_JOINS = re.compile(r"torch\.(cat|concat|concatenate|stack|[hvd]stack)")
_DIFFERENTIATES = frozenset({"backward", "grad", "manual_backward"})


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A loss or an output that an iteration of `loop` leaves in `container`."""

    node: ast.expr | ast.stmt
    container: str
    expression: ast.expr
    value: Value
    loop: Loop


def stored_values(scope: Scope) -> Iterator[StoredValue]:
    """Yield every loss and output put into a container that the innermost loop does not make anew."""
    loops = scope.node in holders(scope.source, *get_args(Loop))
    puts = [put for put in _puts(scope) if scope.loops(put[0])] if loops else []
    values = values_of(scope) if puts else None
    for node, container, expressions in puts:
        loop = scope.loops(node)[0]
        if values is None or values.starts_in(container, loop):
            continue
        pairs = ((expression, values.of(expression)) for expression in expressions)
        if known := next(((expression, value) for expression, value in pairs if value), None):
            yield StoredValue(node, container, *known, loop)


def returned(scope: Scope, container: str) -> bool:
    """Return True if the function returns the container, or a value made from it."""
    derived = {container}
    for node in scope.nodes:
        if isinstance(node, ast.Assign) and any(dotted_name(part) in derived for part in ast.walk(node.value)):
            derived |= {dotted_name(target) for target in node.targets} - {""}
    return any(
        isinstance(node, ast.Return | ast.Yield)
        and node.value is not None
        and any(dotted_name(part) in derived for part in ast.walk(node.value))
        for node in scope.nodes
    )


def joined(scope: Scope, container: str) -> bool:
    """Return True if the function passes the container to `torch.cat` or the like, so that it holds only tensors."""
    return any(
        _JOINS.fullmatch(scope.source.qualified_name(call.func) or "") and dotted_name(call.args[0]) == container
        for call in scope.calls
        if call.args
    )


def read_before_backward(scope: Scope, container: str) -> bool:
    """Return True if something is differentiated after the container was read, so that its graphs may be needed."""
    last = max((position(call) for call in scope.calls if called(call) in _DIFFERENTIATES), default=None)
    return last is not None and any(place < last for place in _reads(scope, container))


def _puts(scope: Scope) -> Iterator[tuple[ast.expr | ast.stmt, str, list[ast.expr]]]:
    """Yield each statement or call that stores a value, the container, and the value."""
    containers = _containers(scope)
    for node in scope.nodes:
        container, put = "", node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) in _PUTS and node.args:
            target = node.func.value
            container, put = dotted_name(target.value if isinstance(target, ast.Subscript) else target), node.args[0]
        elif isinstance(node, ast.AugAssign) and isinstance(node.value, ast.List):
            container, put = dotted_name(node.target), node.value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            name = dotted_name(node.targets[0].value)
            container, put = name if name in containers else "", node.value
        if container and isinstance(node, ast.expr | ast.stmt) and isinstance(put, ast.expr):
            yield node, container, _parts(put)


def _containers(scope: Scope) -> set[str]:
    """Return names that start as a list or dictionary."""
    names: set[str] = set()
    for node in scope.nodes:
        if isinstance(node, ast.Assign):
            value = node.value
            factory = dotted_name(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
            if isinstance(value, ast.List | ast.Dict) or factory in ("list", "dict", "defaultdict", "OrderedDict"):
                names |= {dotted_name(target) for target in node.targets}
    return names - {""}


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Tuple | ast.List):
        return list(node.elts)
    return list(node.values) if isinstance(node, ast.Dict) else [node]


def _reads(scope: Scope, container: str) -> Iterator[Position]:
    for node in named(scope.nodes, container):
        parent = scope.parents[node]
        harmless = isinstance(parent, ast.Attribute) and parent.attr in _HARMLESS
        if isinstance(node.ctx, ast.Load) and not harmless:
            yield position(node)

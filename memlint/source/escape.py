"""Escape analysis of a function's values: a value that gets out of it may be differentiated elsewhere."""

import ast

from memlint.source.calls import called
from memlint.source.scopes import Scope
from memlint.source.text import dotted_name

_CUTS = frozenset({"item", "float", "int", "bool", "len", "detach", "tolist", "numpy", "str"})
"""Calls whose result has no graph."""
_READS = frozenset(
    {"abs", "enumerate", "format", "isinstance", "list", "max", "min", "print", "repr", "round", "sum", "zip"}
)
_LOGS = frozenset(
    {"add_scalar", "critical", "debug", "error", "format", "info", "set_description", "set_postfix", "warning", "write"}
)
_OWN = frozenset({"append", "appendleft", "extend", "clear", "pop", "mean", "sum", "div", "mul", "cpu", "to"})
"""Methods of lists and tensors that pass nothing on."""


def leaves(scope: Scope, name: str) -> bool:
    """Return True if the value of `name`, or a value computed from it with its graph, may get out of the function.

    It does if it is returned, stored in an object, passed to a call that is not known to only read it, used by a nested
    function, or if the caller has it already. In doubt the answer is True.
    """
    names = _computed_from(scope, name)
    if "" in names or "." in name or not names.isdisjoint(_shared(scope)):
        return True
    return any(_gives_away(scope, node, names) for node in scope.nodes)


def _computed_from(scope: Scope, name: str) -> set[str]:
    """Return names that hold `name` or something computed from it; an empty name stands for any other target."""
    names: set[str] = set()
    more = {name}
    while more - names:
        names |= more
        for node in scope.nodes:
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
                value, targets = node.value, node.targets if isinstance(node, ast.Assign) else [node.target]
                stored = {target.id if isinstance(target, ast.Name) else "" for target in targets}
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                value = node.iter
                stored = {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
            else:
                continue
            if value is not None and _carries(scope, value, names):
                more |= stored
    return names


def _shared(scope: Scope) -> set[str]:
    """Return names that the caller or a nested function has too."""
    names: set[str] = set()
    if not isinstance(scope.node, ast.Module):
        arguments = scope.node.args
        names |= {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    for node in scope.nodes:
        if isinstance(node, ast.Global | ast.Nonlocal):
            names.update(node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            names |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return names


def _carries(scope: Scope, value: ast.expr, names: set[str]) -> bool:
    """Return True if one of `names` is read in `value` outside of a call that cuts the graph."""
    return any(
        isinstance(node, ast.Name) and node.id in names and not _cut(scope, node, value) for node in ast.walk(value)
    )


def _cut(scope: Scope, node: ast.AST, end: ast.AST) -> bool:
    while node is not end:
        parent = scope.parents[node]
        if called(parent) in _CUTS or isinstance(parent, ast.Compare | ast.JoinedStr):
            return True
        node = parent
    return called(node) in _CUTS


def _gives_away(scope: Scope, node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Await):
        return node.value is not None and _carries(scope, node.value, names)
    if isinstance(node, ast.Call):
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        return not _only_reads(scope, node, names) and any(_carries(scope, value, names) for value in arguments)
    return False


def _only_reads(scope: Scope, call: ast.Call, names: set[str]) -> bool:
    last = called(call)
    if isinstance(call.func, ast.Name) and last in _READS | _CUTS:
        return True
    if isinstance(call.func, ast.Attribute) and (last in _LOGS | _CUTS or dotted_name(call.func.value) in names):
        return last in _LOGS | _CUTS | _OWN
    qualified = scope.source.qualified_name(call.func) or ""
    return qualified.startswith("torch.") and not qualified.startswith("torch.autograd.")

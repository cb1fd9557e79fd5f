"""Assignments of names and attributes in a file."""

import ast
from collections.abc import Mapping
from functools import lru_cache

from memlint.source.scopes import Scope, scopes
from memlint.source.text import Source, dotted_name


def assigns(node: ast.AST, name: str) -> bool:
    """Return True if a statement binds a name."""
    if isinstance(node, ast.Assign):
        return any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
    if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.NamedExpr):
        return isinstance(node.target, ast.Name) and node.target.id == name
    return False


def assigned_part(statement: ast.AST, name: str) -> ast.expr | None:
    """Return what a statement assigns to a name: 64 to `L` in `B, L = 2, 64`; None if it is no expression there."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return None
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        names = [dotted_name(each) for each in getattr(target, "elts", ())]
        if name in names:
            values = getattr(statement.value, "elts", ())
            return values[names.index(name)] if len(values) == len(names) else None
    return statement.value


@lru_cache(maxsize=64)
def name_assignments(scope: Scope) -> Mapping[str, list[ast.AST]]:
    """Return the statements that bind each name, in the order of the text."""
    assigned: dict[str, list[ast.AST]] = {}
    for node in scope.nodes:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.NamedExpr):
            targets = [node.target]
        names = [part for each in targets for part in getattr(each, "elts", (each,))]
        for name in dict.fromkeys(each.id for each in names if isinstance(each, ast.Name)):
            assigned.setdefault(name, []).append(node)
    return assigned


@lru_cache(maxsize=16)
def attribute_assignments(scope: Scope) -> Mapping[str, list[ast.Assign]]:
    """Return the statements that assign each `name.attribute`."""
    assigned: dict[str, list[ast.Assign]] = {}
    for node in scope.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            assigned.setdefault(f"{target.value.id}.{target.attr}", []).append(node)
    return assigned


def is_grown(scope: Scope, name: str) -> bool:
    """Return True if entries are added to the list of this name."""
    adding = (call.func for call in scope.calls if isinstance(call.func, ast.Attribute))
    return any(each.attr in ("append", "extend", "insert") and dotted_name(each.value) == name for each in adding)


def ends_before(statement: ast.AST, node: ast.stmt | ast.expr) -> bool:
    """Return True if a statement ends before the line of `node`."""
    return (getattr(statement, "end_lineno", 0) or 0) < node.lineno


def annotation_of(function: ast.AST, name: str) -> ast.expr | None:
    """Return the annotation of a function's parameter; None without one."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return next((each.annotation for each in arguments if each.arg == name), None)


def has_parameter(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    """Return True if a function takes an argument of this name."""
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    return any(each is not None and each.arg == name for each in every)


def defines(source: Source, name: str) -> bool:
    """Return True if a class or function of the file has this name."""
    return any(isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name for node in source.tree.body)


def made_in_init(source: Source, owner: ast.ClassDef, attribute: str) -> tuple[ast.expr, Scope] | None:
    """Return the value that `__init__` assigns to an attribute of `self`, or the class body to its own."""
    for scope in scopes(source):
        if scope.owner is owner and scope.name == "__init__":
            for node in scope.nodes:
                if isinstance(node, ast.Assign) and any(dotted_name(t) == f"self.{attribute}" for t in node.targets):
                    return node.value, scope
    return None

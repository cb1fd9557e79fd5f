"""Functions of a file that make its classes, and classes that are parts of others, as its text says."""

import ast
from collections.abc import Collection


def parts_of_others(tree: ast.Module, names: Collection[str]) -> dict[str, str]:
    """Return classes that another class of the file uses or receives, with the name of that class."""
    users: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in names:
            bases = {each for base in node.bases for each in ast.walk(base)}
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and each.id in names and each.id != node.name and each not in bases:
                    users.setdefault(each.id, node.name)
    for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
        if isinstance(call.func, ast.Name) and call.func.id in names:
            for value in (*call.args, *(keyword.value for keyword in call.keywords)):
                if isinstance(value, ast.Name) and value.id in names and value.id != call.func.id:
                    users.setdefault(value.id, call.func.id)
    return users


def other_models(tree: ast.Module, chosen: Collection[str]) -> list[str]:
    """Return the classes of the file that have a `forward`, are no parts of others, and are none of the `chosen`."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    parts = parts_of_others(tree, classes)
    methods = {name: {getattr(each, "name", "") for each in node.body} for name, node in classes.items()}
    return [name for name in classes if "forward" in methods[name] and name not in parts and name not in chosen]


def makers(tree: ast.Module, classes: Collection[str]) -> dict[str, str]:
    """Return functions of the file that return one of its classes, directly or through each other, with that class."""
    made: dict[str, str] = {}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for _ in functions:
        before = len(made)
        for node in functions:
            returned = {
                each.id
                for statement in ast.walk(node)
                if isinstance(statement, ast.Return) and statement.value is not None
                for each in ast.walk(statement.value)
                if isinstance(each, ast.Name)
            }
            called = [
                (each.func.id, each)
                for each in ast.walk(node)
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
            ]
            for name, call in called:
                kind = name if name in classes else made.get(name)
                if kind and node.name not in made and (name in returned or _is_bound(node, call, returned)):
                    made[node.name] = kind
        if len(made) == before:
            break
    return made


def _is_bound(function: ast.FunctionDef, call: ast.Call, names: Collection[str]) -> bool:
    """Return True if the result of `call` is assigned to one of `names`."""
    return any(
        isinstance(node, ast.Assign) and node.value is call and isinstance(target, ast.Name) and target.id in names
        for node in ast.walk(function)
        for target in getattr(node, "targets", ())
    )

"""Names that the functions of a file read, and that only its `__main__` block has: they have their values there.

So does the default dtype that it sets.
"""

import ast
import builtins
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import torch

from memlint.memory.records import Assumption, Frame

_HARMLESS = frozenset(
    (
        *("len", "int", "float", "str", "bool", "range", "list", "set", "dict", "tuple"),
        *("sorted", "max", "min", "sum", "abs", "round", "enumerate", "zip"),
    )
)
_OF_TEXTS = frozenset(("split", "join", "keys", "values", "items", "lower", "strip"))
"""Functions, and methods of texts and dictionaries, that do nothing but give a value."""
_SETS_DTYPE = re.compile(r"torch\.set_default_dtype\(torch\.(\w+)\)")
_given: dict[Frame, list[str]] = {}


def give_main_names(module: ModuleType, path: Path) -> None:
    """Let a file that was imported have what its classes need of `if __name__ == "__main__"`: plain values alone."""
    tree = ast.parse(path.read_bytes())
    wanted = _read_in_functions(tree) - vars(module).keys() - vars(builtins).keys()
    assignments = [each for each in _of_main(tree) if isinstance(each, ast.Assign) and _is_harmless(each)]
    if not any(wanted.intersection(_names(each)) for each in assignments):
        return
    values = dict(vars(module))
    for each in assignments:
        with suppress(Exception):  # of a value that rests on what is not known
            exec(compile(ast.Module([each], []), str(path), "exec"), values)
    given = [name for name in sorted(wanted) if name in values]
    vars(module).update({name: values[name] for name in given})
    _given[Frame(str(path), assignments[0].lineno, "<module>")] = given


def set_main_dtype(path: Path) -> None:
    """Set PyTorch's default dtype as the `__main__` block of a file does: its model may run in no other."""
    for each in _of_main(ast.parse(path.read_bytes())):
        match = _SETS_DTYPE.fullmatch(ast.unparse(each))
        kind = None if match is None else getattr(torch, match[1], None)
        if isinstance(kind, torch.dtype) and kind != torch.get_default_dtype():
            torch.set_default_dtype(kind)
            _given[Frame(str(path), each.lineno, "<module>")] = [f"default dtype {kind}"]


def assumptions() -> list[Assumption]:
    """Return the names that files were given."""
    return [
        Assumption(f"{', '.join(names)} as the file's `__main__` has {'it' if len(names) == 1 else 'them'}", frame)
        for frame, names in _given.items()
    ]


def _read_in_functions(tree: ast.Module) -> set[str]:
    inside = (node for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef) for node in ast.walk(each))
    return {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _of_main(tree: ast.Module) -> Iterator[ast.stmt]:
    for each in tree.body:
        if isinstance(each, ast.If) and "__name__" in ast.unparse(each.test):
            yield from each.body


def _names(assignment: ast.Assign) -> set[str]:
    return {node.id for target in assignment.targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _is_harmless(assignment: ast.Assign) -> bool:
    """Return True if it computes a value, and does nothing else."""
    calls = (node.func for node in ast.walk(assignment) if isinstance(node, ast.Call))
    return all(
        (isinstance(each, ast.Name) and each.id in _HARMLESS)
        or (isinstance(each, ast.Attribute) and each.attr in _OF_TEXTS)
        for each in calls
    )

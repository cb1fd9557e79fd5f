"""Assertions of the user's on versions, or on values of tensors, which nobody knows: those that fail are left out."""

import ast
import re
import traceback
from collections import defaultdict
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from memlint.base.frames import line_of
from memlint.base.ownership import is_users
from memlint.targets.script import Amendment

_LEFT_OUT = re.compile(
    r"^\s*assert\b.*\.(?:(?:unique|any|all|allclose|equal|isfinite|nonzero|max|min|sum|mean|item)\(|__version__\b)"
)


_lines: dict[str, set[int]] = defaultdict(set)
"""Lines of the assertions that are left out, by module."""


def of_assertion(error: AssertionError) -> Amendment | None:
    """Return the change that leaves the assertion out, if it is such a one in a module that the user imports."""
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    name = str(frame.f_globals.get("__name__"))
    is_own = is_users(frame.f_code.co_filename) and name != "__main__"
    return Amendment("assertion", name, str(line)) if is_own and _LEFT_OUT.search(line_of(error)) else None


def without_assertion(line: str, module: Any) -> None:
    """Leave out the assertion at a line of the functions and methods of a module, beside those left out before."""
    lines = _lines[module.__name__]
    lines.add(int(line))
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.lineno in lines:
            node.test = ast.copy_location(ast.Constant(value=True), node.test)
    codes = {(each.co_qualname, each.co_firstlineno): each for each in _inside(compile(tree, module.__file__, "exec"))}
    owners = [module, *(each for each in vars(module).values() if isinstance(each, type))]
    for function in (value for owner in owners for value in list(vars(owner).values())):
        if isinstance(function, FunctionType) and function.__module__ == module.__name__:
            code = function.__code__
            function.__code__ = codes.get((code.co_qualname, code.co_firstlineno), code)


def _inside(code: CodeType) -> list[CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [*inner, *(deeper for each in inner for deeper in _inside(each))]

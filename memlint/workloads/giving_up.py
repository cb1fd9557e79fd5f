"""Lines that ask for what the program does not go on without."""

import ast
import functools
import linecache
import re


@functools.cache
def gives_up(path: str, line: int) -> bool:
    """Return True if a line asks for what the script does not go on without: it asserts it, or raises or exits."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or line):
            return not isinstance(node.test, ast.UnaryOp)
        if isinstance(node, ast.If) and node.lineno <= line <= (node.test.end_lineno or line):
            is_without = _is_without(node.test)
            return _ends(node.body[-1] if is_without else _otherwise(node))
    return False


def _otherwise(node: ast.If) -> ast.stmt:
    """Return the last statement of the `else` behind an `if` and its `elif`s; the `if` itself without one."""
    last = node.orelse[-1] if node.orelse else node
    is_branch = len(node.orelse) == 1 and isinstance(last, ast.If)
    return _otherwise(last) if is_branch and isinstance(last, ast.If) else last


def _is_without(test: ast.expr) -> bool:
    """Return True of `not path.exists()` and `key not in weights`, alone or among other conditions."""
    if isinstance(test, ast.BoolOp):
        parts = [each for each in test.values if any(isinstance(n, ast.Call | ast.NotIn) for n in ast.walk(each))]
        return any(map(_is_without, parts))
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.NotIn)
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _ends(statement: ast.stmt) -> bool:
    """Return True if a statement raises, or calls a function that exits."""
    if isinstance(statement, ast.Raise):
        return True
    called = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(called, ast.Call) and re.search(r"\b_?exit\b|\.error$", ast.unparse(called.func)) is not None

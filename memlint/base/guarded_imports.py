"""Imports that a file can do without: in a `try` that catches what they raise."""

import ast
import linecache
from collections.abc import Iterator

_GUARDS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def is_guarded(path: str, line: int) -> bool:
    """Return True if the file can do without the import in that line."""
    return any(_guards(node, line) for node in statements_at(path, line))


def imported_with(path: str, line: int) -> Iterator[str]:
    """Yield the dotted names of all that the file can only do without together with the import in that line."""
    for node in statements_at(path, line):
        for each in node.body if isinstance(node, ast.Try | ast.With) and _guards(node, line) else ():
            if isinstance(each, ast.Import):
                yield from (name.name for name in each.names)
            elif isinstance(each, ast.ImportFrom):
                yield from (f"{each.module}.{name.name}" for name in each.names)


def _guards(node: ast.stmt, line: int) -> bool:
    if isinstance(node, ast.Try):
        return line <= (node.body[-1].end_lineno or line) and _is_caught(node)
    return isinstance(node, ast.With) and any(_GUARDS & _names(item.context_expr) for item in node.items)


def _is_caught(node: ast.Try) -> bool:
    """Return True if a handler catches an ImportError, unless one before it needs what could not be imported."""
    imported = {
        each.asname or each.name.partition(".")[0]
        for part in node.body
        if isinstance(part, ast.Import | ast.ImportFrom)
        for each in part.names
    }
    for handler in node.handlers:
        if handler.type is not None and imported & _names(handler.type):
            return False
        if _catches(handler):
            return True
    return False


def statements_at(path: str, line: int) -> Iterator[ast.stmt]:
    """Yield the statements of a file of Python that this line is in."""
    tree = ast.parse("".join(linecache.getlines(path)))
    return (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    )


def _catches(handler: ast.ExceptHandler) -> bool:
    """Return True if a handler catches an ImportError, and does not raise another one for it."""
    is_meant = handler.type is None or _GUARDS & _names(handler.type)
    return bool(is_meant) and not any(isinstance(node, ast.Raise) for node in handler.body)


def _names(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}

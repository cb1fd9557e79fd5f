"""Training on several scales: a loop that resizes each batch of images a few times and takes a step with each size."""

import ast
import linecache
from collections.abc import Iterator
from types import FrameType

from memlint.base.variables import variables_of

_MOST = 8


def num_scales(frame: FrameType | None) -> int:
    """Return how many scales the innermost loop around the line of `frame` goes through; 1 if it is over other things.

    Its values are a few different numbers, and its body multiplies by them.
    """
    if frame is None:
        return 1
    tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    around = [each for each in ast.walk(tree) if isinstance(each, ast.For) and _has(each, frame.f_lineno)]
    loop = max(around, key=lambda each: each.lineno, default=None)
    if loop is None or not isinstance(loop.target, ast.Name) or loop.target.id not in _factors(loop):
        return 1
    values = _values(loop.iter, frame)
    are_numbers = all(type(each) in (int, float) for each in values)
    return len(values) if are_numbers and 1 < len(set(values)) == len(values) <= _MOST else 1


def _has(loop: ast.For, line: int) -> bool:
    return loop.lineno < line <= (loop.end_lineno or loop.lineno)


def _factors(loop: ast.For) -> Iterator[str]:
    """Yield the names that the body of a loop multiplies by."""
    for node in ast.walk(loop):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield from (each.id for each in (node.left, node.right) if isinstance(each, ast.Name))


def _values(node: ast.expr, frame: FrameType) -> list[object]:
    if isinstance(node, ast.List | ast.Tuple):
        return [each.value for each in node.elts if isinstance(each, ast.Constant)]
    value = {**frame.f_globals, **variables_of(frame)}.get(node.id) if isinstance(node, ast.Name) else None
    return list(value) if isinstance(value, list | tuple) else []

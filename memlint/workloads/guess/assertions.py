"""Shapes, or single sizes of them, that a model's own assertion compares."""

import ast
import re
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from linecache import getlines

from memlint.base.frames import line_of

_RANK = re.compile(r"(?:len\((\w+)\.shape\)|(\w+)\.(?:ndim|dim\(\))) (?:[!=]=|>=|(?:not )?in [({\[](?:\d, )*)\s?(\d)")
"""The comparison of a tensor's number of dimensions; of several the last."""
_CALLS = (ast.Call, ast.Await, ast.NamedExpr)


def asserted_equal(error: BaseException | None) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the two shapes that a failed `assert a == b` compares, in both orders; nothing of another assertion.

    A single size, as in `assert x.shape[1] == self.length`, is a shape of one.
    """
    if not isinstance(error, AssertionError) or error.__traceback__ is None:
        return
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    with suppress(Exception):  # a line that is no whole statement, a name that is gone
        (statement,) = ast.parse(line_of(error).strip()).body
        if not isinstance(statement, ast.Assert) or not isinstance(test := statement.test, ast.Compare):
            return
        if not isinstance(test.ops[0], ast.Eq) or any(isinstance(each, _CALLS) for each in ast.walk(test)):
            return
        sides = [eval(ast.unparse(side), frame.f_globals, frame.f_locals) for side in (test.left, *test.comparators)]
        own, wanted = ((side,) if type(side) is int else tuple(side) for side in sides)
        if len(own) == len(wanted) > 0:
            yield own, wanted
            yield wanted, own


def asserted_ranks(error: BaseException | None) -> dict[str, int]:
    """Return the numbers of dimensions that an assertion, or the `if` around a `raise`, wants, by variable."""
    if error is None or error.__traceback__ is None:
        return {}
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    found = _RANK.findall(_condition(frame.f_code.co_filename, line))
    return {counted or asked: int(rank) for counted, asked, rank in found}


@cache
def _condition(path: str, line: int) -> str:
    """Return the condition of the assertion in a line, or of the innermost `if` whose body is the `raise` there."""
    with suppress(SyntaxError):
        for node in ast.walk(ast.parse("".join(getlines(path)))):
            if not isinstance(node, ast.Assert | ast.If):
                continue
            ends = node.body[0] if isinstance(node, ast.If) else node
            if isinstance(ends, ast.Assert | ast.Raise) and ends.lineno <= line <= (ends.end_lineno or line):
                return ast.unparse(node.test)
    return ""

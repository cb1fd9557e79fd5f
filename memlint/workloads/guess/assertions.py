"""Shapes, or single sizes of them, that a model's own assertion compares."""

import ast
import traceback
from collections.abc import Iterator
from contextlib import suppress

from memlint.base.frames import line_of

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

"""The place at which a program failed, and the values of its names there."""

from __future__ import annotations

import ast
import itertools
import linecache
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from memlint.base.frames import text_of
from memlint.base.ownership import is_users
from memlint.base.variables import variables_of

_METHODS = frozenset(
    ("split", "rsplit", "strip", "rstrip", "lstrip", "lower", "upper", "replace", "decode", "splitlines")
)
"""Methods of texts that change nothing else."""


class UnknownError(Exception):
    """A value is not to be had without running the program."""


class Failure:
    """The place at which a program failed: the user's innermost frame, and the expression in it."""

    def __init__(self, error: BaseException, frame: FrameType, line: int, node: ast.AST, tree: ast.Module) -> None:
        self.error, self.text, self.node, self.tree = error, text_of(error), node, tree
        self.key = f"{frame.f_code.co_filename}:{line}"
        self._frames = [variables_of(frame), frame.f_globals]
        if frame.f_back is not None and frame.f_code.co_name.startswith("<"):  # of a comprehension
            self._frames.insert(1, variables_of(frame.f_back))
        self.line = line

    @classmethod
    def of(cls, error: BaseException) -> Failure | None:
        """Return where an exception was raised; None outside of the user's files."""
        place: tuple[FrameType, int, int] | None = None
        trace = error.__traceback__
        while trace is not None:
            if is_users(trace.tb_frame.f_code.co_filename):
                place = trace.tb_frame, trace.tb_lineno, trace.tb_lasti
            trace = trace.tb_next
        if place is None:
            return None
        frame, line, instruction = place
        position = next(itertools.islice(frame.f_code.co_positions(), instruction // 2, None), None)
        with suppress(SyntaxError):
            tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
            return cls(error, frame, line, _node_at(tree, line, position), tree)
        return None

    def value(self, node: ast.AST | None) -> Any:
        """Return the value of an expression that can be known. Raises UnknownError for all others."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._tried(lambda: next(each[name] for each in self._frames if name in each))
            case ast.Attribute(value=owner, attr=name):
                return self._tried(lambda: getattr(self.value(owner), name))
            case ast.Subscript(value=owner, slice=key):
                return self._tried(lambda: self.value(owner)[self.value(key)])
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(*(None if each is None else self.value(each) for each in (lower, upper, step)))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._tried(lambda: -self.value(operand))
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=arguments, keywords=[]) if name in _METHODS:
                text = self.value(owner)
                if isinstance(text, str | bytes):
                    return self._tried(lambda: getattr(text, name)(*map(self.value, arguments)))
        raise UnknownError

    @staticmethod
    def _tried(evaluate: Callable[[], Any]) -> Any:
        try:
            return evaluate()
        except Exception as error:  # of an object of the script's
            raise UnknownError from error

    def values(self, node: ast.AST) -> Iterator[Any]:
        """Yield the values of all parts of an expression that can be known, the outer ones first."""
        for each in ast.walk(node):
            if isinstance(each, ast.expr):
                with suppress(UnknownError):
                    yield self.value(each)

    def enclosing(self, *kinds: type[ast.AST]) -> Iterator[Any]:
        """Yield the nodes of these kinds around the expression, the innermost first."""
        inside: list[Any] = [
            each for each in ast.walk(self.tree) if isinstance(each, kinds) and _is_within(self.node, each)
        ]
        yield from sorted(inside, key=lambda each: (each.end_lineno - each.lineno, each.end_col_offset))

    def names(self, texts: frozenset[str]) -> bool:
        """Return True if the file has all of these texts."""
        return texts <= {each.value for each in ast.walk(self.tree) if isinstance(each, ast.Constant)}

    def looped(self, name: str) -> Iterator[Any]:
        """Yield the values of which a variable called `name` is an item in this file, by a loop or by its number."""
        for each in ast.walk(self.tree):
            target, over = _item_of(each)
            if isinstance(over, ast.Call) and over.args:  # a progress bar, `sorted` and others
                over = over.args[0]
            if isinstance(over, ast.Subscript) and isinstance(over.slice, ast.Slice):
                over = over.value
            if target == name:
                with suppress(UnknownError):
                    yield self.value(over)


def _item_of(node: ast.AST) -> tuple[str, ast.expr | None]:
    """Return the variable that a loop or an assignment makes an item of something, and that; empty for other nodes."""
    match node:
        case ast.For(target=ast.Name(id=name), iter=over) | ast.comprehension(target=ast.Name(id=name), iter=over):
            return name, over
        case ast.For(target=ast.Tuple(elts=[_, ast.Name(id=name)]), iter=ast.Call(args=[over, *_])):  # `enumerate`
            return name, over
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=over, slice=ast.Name() | ast.BinOp())):
            return name, over
    return "", None


def _node_at(tree: ast.Module, line: int, position: tuple[int | None, ...] | None) -> ast.AST:
    nodes = [each for each in ast.walk(tree) if isinstance(each, ast.expr | ast.stmt)]
    if position is not None and None not in position:
        same = [
            each for each in nodes if (each.lineno, each.end_lineno, each.col_offset, each.end_col_offset) == position
        ]
        if same:
            return same[-1]
    around = [each for each in nodes if each.lineno <= line <= (each.end_lineno or line)]
    return max(around, key=lambda each: each.lineno, default=tree)


def _is_within(inner: Any, outer: Any) -> bool:
    if not hasattr(inner, "lineno"):
        return False
    begin, end = (outer.lineno, outer.col_offset), (outer.end_lineno, outer.end_col_offset)
    return begin <= (inner.lineno, inner.col_offset) and (inner.end_lineno, inner.end_col_offset) <= end

"""Ends a script whose loop over positions, or whose generation, will not be over within the time limit.

Every so many kernels the loops over `range(...)` that run within a model are watched for a few iterations. A loop that
is too long is said then, and not when the time is over.
"""

from __future__ import annotations

import ast
import functools
import linecache
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch

from memlint.base.ownership import is_users
from memlint.base.variables import variables_of
from memlint.targets.script import Ending, Script

_EVERY = 2048
"""Kernels from one look to the next."""
_WATCHED = 512
"""Kernels of a look."""
_LEAST_ITERATIONS = 3
_LEAST_TOKENS = 16
_MARGIN = 1.5
"""The least multiple of the seconds left that a loop is predicted to take before the script is ended."""
_BOUNDS = (
    *(ast.Constant, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.BinOp, ast.operator, ast.Call),
    *(ast.UnaryOp, ast.unaryop),
)
"""Syntax of the bounds of a range that are evaluated once more; a call may be of `len` or `size` alone."""


class _Loop(NamedTuple):
    """A loop that is running."""

    key: tuple[int, int]
    """Id of its frame, and its line."""
    position: int
    bounds: range
    path: str
    module: str
    """Class of the module whose method it is in; empty in a function."""


class _Seen(NamedTuple):
    """The observations of a loop."""

    first: int
    began: float
    last: int
    now: float


class Pace:
    """The seconds that a script has left, and the loops that were seen to run."""

    def __init__(
        self,
        seconds: float,
        script: Script,
        end: Callable[[Ending], None],
        num_modules: Callable[[str], int],
        extends: Callable[[int], bool] = lambda _num_tokens: False,
    ) -> None:
        """Expect the script, which `end` ends, to be over `seconds` from now on.

        `num_modules` gives the number of modules of a class in the models that were called; `extends` is True if all
        the tokens of the running generation follow from those that there are.
        """
        self.limit = seconds
        self._num_modules = num_modules
        self._deadline = time.perf_counter() + seconds
        self._script, self._end = script, end
        self._seen: dict[tuple[int, int], _Seen] = {}
        self._next, self._left = _EVERY, 0
        self._generation = _Seen(0, 0.0, 0, 0.0)
        self._extends = extends
        self.num_tokens = 0
        """The tokens of the generation in which the script was ended as they do."""

    def kernel(self, number: int) -> None:
        """A kernel begins: the script's number `number`, within the call of a model."""
        if number >= self._next:
            self._seen, self._left, self._next = {}, _WATCHED, number + _EVERY
        if not self._left:
            return
        self._left -= 1
        loops = list(_loops())
        now = time.perf_counter()
        for loop in loops:
            seen = self._seen.get(loop.key, _Seen(loop.position, now, loop.position, now))
            is_same = loop.position in (seen.last, seen.last + 1)  # another call may have a frame at the same place
            moved = seen._replace(last=loop.position, now=now) if loop.position != seen.last else seen
            self._seen[loop.key] = moved if is_same else _Seen(loop.position, now, loop.position, now)
        if not self._left:
            for loop in loops:
                self._judge(loop, self._seen[loop.key])

    def _judge(self, loop: _Loop, seen: _Seen) -> None:
        iterations = seen.last - seen.first
        if iterations < _LEAST_ITERATIONS:
            return
        once = (seen.now - seen.began) / iterations * len(loop.bounds)
        calls = max(1, self._num_modules(loop.module)) if loop.module else 1
        trains = torch.is_grad_enabled()
        seconds = once * calls * (2 * self._script.steps if trains else 1)
        if seconds > _MARGIN * self._seconds_left():
            often = f", {calls} times in each forward" if calls > 1 else ""
            again = " and its backward" if trains else ""
            what = f"a loop of {len(loop.bounds):,} iterations{again} ({loop.path}:{loop.key[1]})"
            self._end_early(f"{what} takes {_about(once)}{often}", seconds, "give it a shorter sequence")

    def called_for_token(self, number: int) -> None:
        """The model of a generation by the script's own loop was called for token `number`; the prompt gave token 0."""
        loops = list(_loops(is_within_model=False))
        loop = next(iter(loops), None)
        if self._generation.last != number:
            now = time.perf_counter()
            self._generation = _Seen(1, now, number, now)
        is_known = loop is not None and loop.position in loop.bounds
        left = loop.bounds[-1] - loop.position if loop is not None and is_known else None
        again = sum(each.bounds[-1] - each.position for each in loops[1:])
        self.generated(number + 1, None if left is None else number + 1 + left, again)

    def generated(self, length: int, longest: int | None, again: int = 0) -> None:
        """A token was generated: all texts have `length` tokens now, and at most `longest`.

        After these as many more will be, `again` times.
        """
        now, seen = time.perf_counter(), self._generation
        if longest is None or length != seen.last + 1:
            self._generation = _Seen(length, now, length, now)
            return
        self._generation = seen._replace(last=length, now=now)
        done = length - seen.first
        if done < _LEAST_TOKENS:
            return
        of_one, num_tokens = (now - seen.began) / done, longest - seen.first + 1
        seconds, left = of_one * (longest - length), _MARGIN * self._seconds_left()
        is_too_often = done == _LEAST_TOKENS and seconds + again * of_one * num_tokens > left
        if (seconds > left or is_too_often) and self._extends(num_tokens):
            self.num_tokens = num_tokens
            text = f"{done + 1} of {num_tokens:,} tokens were generated, from which the others follow"
            self._end(Ending(text + (f", and {again} more times as many" if again else ""), goes_on=True))
        if seconds > left:
            self._end_early(f"{longest - length:,} more tokens are to be generated", seconds, "let it generate fewer")

    def _seconds_left(self) -> float:
        return max(0.0, self._deadline - time.perf_counter())

    def _end_early(self, text: str, seconds: float, instead: str) -> None:
        total = self.limit - self._seconds_left() + _MARGIN * seconds
        lines = (each for each in traceback.extract_stack(sys._getframe(2)) if is_users(each.filename))
        enough = 60 * math.ceil(total / 60)
        self._end(
            Ending(
                f"it was stopped as it will not be over within the time limit of {self.limit:g} s: {text}, which makes "
                f"{_about(seconds)}",
                goes_on=True,
                is_failure=True,
                traceback=tuple(f"{each.filename}:{each.lineno} in {each.name}" for each in lines),
                hint=f"Type memlint run --time-limit {enough} {self._script.command}, or {instead}: "
                "memory grows evenly with it.",
            )
        )


def _about(seconds: float) -> str:
    return f"about {seconds:.1f} s" if seconds < 10 else f"about {seconds:.0f} s"


def _loops(*, is_within_model: bool = True) -> Iterator[_Loop]:
    """Yield the loops over ranges in the user's functions that run within a model, or call it, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not (is_within_model and frame.f_code.co_name == "outermost_call"):
        path = frame.f_code.co_filename
        if _is_users(path):
            for line, name, bounds in _loops_over(path, frame.f_lineno):
                variables = variables_of(frame)
                position = variables.get(name)
                values = _range(bounds, variables, frame.f_globals)
                if isinstance(position, int) and values:
                    owner = variables.get(next(iter(frame.f_code.co_varnames), ""))
                    kind = type(owner).__name__ if isinstance(owner, torch.nn.Module) else ""
                    yield _Loop((id(frame), line), position, values, path, kind)
        frame = frame.f_back


_is_users = functools.cache(is_users)


@functools.cache
def _ranges(path: str) -> tuple[tuple[int, range, str, tuple[Any, ...]], ...]:
    """Return line, lines of the body, variable and compiled bounds of each loop over a range that counts up by one."""
    loops = []
    for node in ast.walk(ast.parse("".join(linecache.getlines(path)))):
        if not (isinstance(node, ast.For) and isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Call)):
            continue
        bounds = node.iter.args
        is_range = isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range" and 1 <= len(bounds) <= 2
        if is_range and all(map(_is_plain, bounds)):
            compiled = tuple(compile(ast.Expression(each), path, "eval") for each in bounds)
            body = range(node.body[0].lineno, (node.body[-1].end_lineno or node.lineno) + 1)
            loops.append((node.lineno, body, node.target.id, compiled))
    return tuple(loops)


def _is_plain(bound: ast.expr) -> bool:
    calls = (node.func for node in ast.walk(bound) if isinstance(node, ast.Call))
    names = (each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in calls)
    return all(isinstance(node, _BOUNDS) for node in ast.walk(bound)) and all(n in ("len", "size") for n in names)


@functools.cache
def _loops_over(path: str, line: int) -> tuple[tuple[int, str, tuple[Any, ...]], ...]:
    return tuple((first, name, bounds) for first, body, name, bounds in _ranges(path) if line in body)


def _range(bounds: tuple[Any, ...], variables: dict[str, Any], of_module: dict[str, Any]) -> range:
    """Return the positions of a loop; none if they are not known."""
    try:
        values = [eval(each, of_module, dict(variables)) for each in bounds]
    except Exception:  # a variable that was deleted, or a size that only the loop's beginning knew
        return range(0)
    return range(*values) if all(isinstance(each, int) for each in values) else range(0)

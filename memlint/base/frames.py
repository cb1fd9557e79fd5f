"""Which lines of a stack are the user's: not Python's, not an installed package's, not memlint's."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOREIGN = (*{str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib")},)
_MEMLINT = str(Path(__file__).resolve().parent.parent)
_INSTALLED = {"site-packages", "dist-packages"}
_NUM_ENDS = 8
"""Lines shown of each end of a long stack, as of a recursion without an end."""
_STACK_LINE = re.compile(r'^  File "(?P<path>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)


def is_users(path: str) -> bool:
    """Whether the file at `path` belongs to the user."""
    if path.startswith("<") or _INSTALLED.intersection(Path(path).parts):
        return False
    return not any(Path(path).is_relative_to(place) for place in (*_FOREIGN, _MEMLINT))


def user_lines(error: BaseException) -> list[str]:
    """`path:line in function` of the user's lines an exception went through, outermost first.

    Where the exception was raised from another, the lines are those of the first that touched the user's code.
    """
    lines: list[str] = []
    for link in chain(error):
        summary = traceback.extract_tb(link.__traceback__)
        lines = [
            f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in summary if is_users(frame.filename)
        ] or lines
    left_out = len(lines) - 2 * _NUM_ENDS
    return lines if left_out <= 1 else [*lines[:_NUM_ENDS], f"... {left_out} lines ...", *lines[-_NUM_ENDS:]]


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, what it was raised from, and so on."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def innermost_user_line(stack: str) -> str | None:
    """`path:line in function` of the user's line in a stack that faulthandler wrote, most recent call first."""
    places = (match for match in _STACK_LINE.finditer(stack) if is_users(match["path"]))
    return next((f"{place['path']}:{place['line']} in {place['function']}" for place in places), None)

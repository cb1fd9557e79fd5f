"""The user's lines in the stack of an exception or of a process, or in the one that runs."""

import functools
import re
import sys
import traceback
from collections.abc import Iterator
from types import FrameType

from memlint.base.ownership import is_users

_NUM_ENDS = 8
"""Number of lines shown from each end of a long stack, as of an endless recursion."""
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "bad_alloc", "Cannot allocate memory")
_STACK_LINE = re.compile(r'^  File "(?P<path>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)


def user_frames() -> Iterator[FrameType]:
    """Yield the running lines of the user's code, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_users_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


_is_users_file = functools.cache(is_users)


def user_lines(error: BaseException) -> list[str]:
    """Return `path:line in function` for each of the user's lines that an exception went through, outermost first.

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


_COLOUR = re.compile(r"\x1b\[[\d;]*m")
"""Sequence that sets a terminal's colour."""


def text_of(error: BaseException) -> str:
    """Return the text of an exception without colours, even if its `__str__` raises."""
    try:
        return _COLOUR.sub("", str(error))
    except BaseException as raised:
        return f"its message raises {type(raised).__name__}"


def line_of(error: BaseException) -> str:
    """Return the user's innermost line that an exception went through, or else the innermost of all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users(frame.filename)] or frames
    return (own[-1].line or "") if own else ""


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, its cause and so on, each once; `raise error from error` is legal Python."""
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and what it was raised from, and so on; not what was only handled when it was raised."""
    for link in chain(error):
        yield link
        if link.__cause__ is None:
            return


def is_out_of_host_memory(error: BaseException) -> bool:
    """Return True if an allocation of host memory failed somewhere in the chain of `error`."""
    return any(
        isinstance(link, MemoryError) or any(text in text_of(link) for text in _OUT_OF_MEMORY) for link in chain(error)
    )


def innermost_user_line(stack: str) -> str | None:
    """Return `path:line in function` of the user's line in a stack that faulthandler wrote, most recent call first."""
    return next((f"{place['path']}:{place['line']} in {place['function']}" for place in _places(stack)), None)


def is_in_function(stack: str) -> bool:
    """Return True if no file of the user's is being imported in faulthandler's stack, which may have none of them."""
    return _STACK_LINE.search(stack) is not None and all(place["function"] != "<module>" for place in _places(stack))


def _places(stack: str) -> Iterator[re.Match[str]]:
    return (match for match in _STACK_LINE.finditer(stack) if is_users(match["path"]))

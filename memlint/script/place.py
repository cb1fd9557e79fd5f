"""The line of the script that is running."""

import functools
import sys
from types import FrameType

from memlint.base.ownership import is_users
from memlint.tracing.records import Frame


def script_frame() -> Frame | None:
    """The innermost line of the user's that runs now; None where only installed packages are running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_users(frame.f_code.co_filename):
            return Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


_is_users = functools.cache(is_users)


def note(error: BaseException, text: str, hint: str, examples: str = "") -> None:
    """Add to `error` which line of the script wants what, and what to do; `examples` are names that would do."""
    frame = script_frame()
    where = f"{frame.path}:{frame.line}" if frame is not None else "the script"
    known = f" (known by name: {examples})" if examples else ""
    error.add_note(f"{where} {text}: {hint}{known}.")

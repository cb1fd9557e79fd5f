"""The running line of the script."""

from memlint.accelerator import state
from memlint.base.frames import user_frames
from memlint.memory.records import Frame


def script_frame() -> Frame | None:
    """Return the innermost running line of the user's code; None if only installed packages are running."""
    frame = next(user_frames(), None)
    return frame and Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def note(error: BaseException, text: str, hint: str, examples: str = "") -> None:
    """Add to `error` the script's line that needs the data, and the remedy; `examples` are names that would work."""
    frame = script_frame()
    where = f"{frame.path}:{frame.line}" if frame is not None else "the script"
    known = f" (known by name: {examples})" if examples else ""
    error.add_note(f"{where} {text}: {hint}{known}.")
    not_there.append(text)


not_there: list[str] = []
"""Descriptions of what this process has asked for, and what is neither there nor made up."""
replaced: list[str] = []
"""Descriptions of everything in this process that stands for what is not there, with their lines."""
fake_data: list[str] = []
"""Those of data."""


def note_replaced(text: str) -> None:
    """Record the assumption `text`, which describes what stands for something that is not there."""
    state.assume(text)
    frame = script_frame()
    replaced.append(text if frame is None else f"{text} ({frame.path}:{frame.line})")


def note_fake_data(text: str) -> None:
    """Record the assumption `text`, which describes fake data."""
    note_replaced(text)
    fake_data.append(replaced[-1])

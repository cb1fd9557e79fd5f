"""Notes about what the running line of the user's code asks for and does not get: what stands for it, or a remedy."""

from memlint.accelerator import state
from memlint.base.frames import user_frames
from memlint.memory.records import Assumption, Frame


def script_frame() -> Frame | None:
    """Return the innermost running line of the user's code; None if only installed packages are running."""
    frame = next(user_frames(), None)
    return frame and Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def note(error: BaseException, text: str, hint: str, examples: str = "") -> None:
    """Add to `error` the line that needs what is not there, and the remedy; `examples` are names that would work."""
    frame = script_frame()
    where = f"{frame.path}:{frame.line}" if frame is not None else "the script"
    known = f" (known by name: {examples})" if examples else ""
    error.add_note(f"{where} {text}: {hint}{known}.")
    not_there.append(text)


LACKS_FOLDER = "_memlint_lacks_folder"
"""Name of the attribute of an error by which it says which folder is not there that something is written in."""
not_there: list[str] = []
"""Descriptions of what this process has asked for, and what is neither there nor made up."""
replaced: list[str] = []
"""Descriptions of everything in this process that is not there, or what stands for it, with their lines."""
fake_data: list[str] = []
"""Those of data."""
_noted: dict[str, Frame | None] = {}
"""Assumptions, with the lines of the user's code that first needed them."""


def note_assumption(text: str) -> None:
    """Record the assumption `text` for the running simulation, and for all that follow in this process."""
    state.assume(text)
    _noted.setdefault(text, script_frame())


def noted() -> list[Assumption]:
    """Return all assumptions that were recorded in this process, in a simulation or not."""
    return [Assumption(text, frame) for text, frame in _noted.items()]


def note_replaced(text: str) -> None:
    """Record the assumption `text`, which describes what stands for something that is not there."""
    note_assumption(text)
    note_lack(text, _noted[text])


def note_lack(text: str, frame: Frame | None = None) -> None:
    """Remember that something is not there, as a cause if the script fails; by itself it changes nothing."""
    frame = frame or script_frame()
    shown = text if frame is None else f"{text} ({frame.path}:{frame.line})"
    if shown not in replaced:
        replaced.append(shown)


def note_fake_data(text: str) -> None:
    """Record the assumption `text`, which describes fake data."""
    note_replaced(text)
    fake_data.append(next(each for each in reversed(replaced) if each.startswith(text)))

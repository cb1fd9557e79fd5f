"""Writing the files that a command is asked for."""

import os
from pathlib import Path

from memlint.base.errors import UsageError


def write_file(file: Path, content: bytes, hint: str = "Give another file.") -> None:
    """Replace the contents of `file` by `content`, completely or not at all. Raises UsageError with this `hint`."""
    place = Path(os.path.realpath(file))
    try:
        if place.exists() and not place.is_file():  # a device or a pipe
            place.write_bytes(content)
        else:
            replace_content(place, content)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}", hint) from error


def replace_content(file: Path, content: bytes) -> None:
    """Replace the content of a file atomically and keep its mode. Raises OSError."""
    written = file.with_name(f".{file.name[:200]}.{os.getpid()}")
    try:
        written.write_bytes(content)
        if file.exists():
            written.chmod(file.stat().st_mode)
        written.replace(file)
    finally:
        written.unlink(missing_ok=True)

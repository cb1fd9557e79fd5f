"""Writing the files that a command is asked for."""

import os
from pathlib import Path

from memlint.base.errors import UsageError


def write_file(file: Path, content: bytes, hint: str = "Give another file.") -> None:
    """Write `content` in place of what is in `file`, all of it or nothing. Raises UsageError with this `hint`."""
    place = Path(os.path.realpath(file))
    written = place.with_name(f".{place.name[:200]}.{os.getpid()}")
    try:
        if place.exists() and not place.is_file():  # a device or a pipe
            place.write_bytes(content)
            return
        try:
            written.write_bytes(content)
            if place.exists():
                written.chmod(place.stat().st_mode)
            written.replace(place)
        finally:
            written.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}", hint) from error

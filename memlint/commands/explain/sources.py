"""Sources of `memlint explain`, sorted by what they hold: recordings, known by their first bytes, and logs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memlint.base.errors import TargetError

STDIN = "-"
_RECORDINGS = (b"\x80", b"\x1f\x8b")
"""First bytes of pickles of protocol 2 and later, and of gzip."""
_ARCHIVE = b"PK"
"""First bytes of a zip file, as torch.save writes one."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a command, by what they hold."""

    recordings: tuple[Path, ...]
    """Files, and folders with one file for each rank."""
    logs: tuple[str, ...]
    """Files of text, and `-` for stdin."""


def sorted_out(sources: Sequence[str]) -> Sources:
    """Tell recordings from logs. Raises TargetError for a file that cannot be read, or can be neither."""
    recordings, logs = [], []
    for source in dict.fromkeys(sources):
        path = Path(source)
        start = b""
        if source != STDIN and not path.is_dir():
            try:
                with path.open("rb") as file:
                    start = file.read(2)
            except OSError as error:
                raise TargetError(f"{source} cannot be read: {error.strerror}", "Is it a file?") from error
        if start == _ARCHIVE:
            raise TargetError(
                f"{source} is an archive, as checkpoints are, and neither a log nor a recording of a GPU",
                "Give a log, or what torch.cuda.memory._dump_snapshot wrote.",
            )
        if source != STDIN and (path.is_dir() or start.startswith(_RECORDINGS)):
            recordings.append(path)
        else:
            logs.append(source)
    return Sources(tuple(recordings), tuple(logs))

"""Sources of `memlint explain`: recordings by their first bytes, and text, which messages and logs are."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memlint.base.errors import TargetError

STDIN = "-"
MOST_TEXT = 2**26
"""Bytes of a log."""
_RECORDINGS = (b"\x80", b"\x1f\x8b")
"""First bytes of pickles of protocol 2 and later, and of gzip."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a command, by what they hold."""

    recordings: tuple[Path, ...]
    """Files, and folders with one file for each rank."""
    texts: tuple[tuple[str, str], ...]
    """Name and text."""


def sorted_out(sources: Sequence[str]) -> Sources:
    """Read the texts among `sources`, and leave the recordings. Raises TargetError for what is neither."""
    recordings, texts = [], []
    for source in dict.fromkeys(sources):
        path = Path(source)
        if source == STDIN:
            texts.append(("stdin", _text("stdin", sys.stdin.buffer.read(MOST_TEXT + 1))))
            continue
        if path.is_dir():
            recordings.append(path)
            continue
        try:
            with path.open("rb") as file:
                start = file.read(2)
                if start.startswith(_RECORDINGS):
                    recordings.append(path)
                else:
                    texts.append((source, _text(source, start + file.read(MOST_TEXT + 1))))
        except OSError as error:
            raise TargetError(f"{source} cannot be read: {error.strerror}", "Is it a file?") from error
    return Sources(tuple(recordings), tuple(texts))


def _text(name: str, content: bytes) -> str:
    if not content.strip():
        raise TargetError(f"{name} is empty", "Give it the message of the failure, or a snapshot.")
    if len(content) > MOST_TEXT:
        raise TargetError(
            f"{name} has more than {MOST_TEXT >> 20} MiB", "Cut the end out of it: tail -n 1000 train.log > end.log"
        )
    if b"\0" in content:
        raise TargetError(
            f"{name} is neither text nor a recording of a GPU",
            "Give a log, or what torch.cuda.memory._dump_snapshot wrote.",
        )
    return content.decode("utf-8", "replace")

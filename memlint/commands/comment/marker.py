"""The last line of a comment, invisible to readers: whose comment it is, how new, and a digest of its text.

A marker proves nothing by itself, because anybody can write one: it counts only in a comment of the right author.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

from memlint.base.errors import UsageError

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MARKER = re.compile(
    rf"<!-- memlint comment tag=({_TAG.pattern})(?: run=(\d{{1,18}})\.(\d{{1,18}}))? digest=([0-9a-f]{{16}}) -->\s*\Z"
)

Order = tuple[int, int]
"""Number of the run, number of the attempt: the newer of two runs has the greater order."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The facts that a comment carries about itself."""

    tag: str
    """Name that separates the comments of several jobs."""
    digest: str
    """Digest of the text without the marker, as written: a forge may change white space."""
    order: Order | None = None
    """Order of the run that wrote it, None outside a forge's CI."""

    def __str__(self) -> str:
        run = f" run={self.order[0]}.{self.order[1]}" if self.order is not None else ""
        return f"<!-- memlint comment tag={self.tag}{run} digest={self.digest} -->"


def marker_of(text: str, tag: str, order: Order | None = None) -> Marker:
    """Make the marker for a comment with `text`. Raises UsageError for a tag that a marker cannot hold."""
    if not _TAG.fullmatch(tag):
        raise UsageError(
            f"--tag {tag!r} is not a tag",
            "Write up to 64 letters, digits, dots, dashes and underscores, as in --tag gpt-small.",
        )
    return Marker(tag, sha256(text.encode()).hexdigest()[:16], order)


def marked(text: str, marker: Marker) -> str:
    """Return `text` with its marker as the last line, after an empty line that closes any open Markdown block."""
    return f"{text.rstrip()}\n\n{marker}\n"


def read_marker(body: str) -> Marker | None:
    """Return the marker in the last line of a comment, None without one."""
    match = _MARKER.search(body)
    if match is None or (match.start() and body[match.start() - 1] != "\n"):
        return None
    tag, run, attempt, digest = match.groups()
    return Marker(tag, digest, (int(run), int(attempt)) if run else None)

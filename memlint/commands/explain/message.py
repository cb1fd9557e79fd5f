"""`memlint explain` of text: a message about memory, or the log of a run."""

import json
from pathlib import Path
from typing import IO

from memlint.base.errors import TargetError, UsageError
from memlint.explain.failure import Failure, failure_in
from memlint.explain.narrative import lines_of, sentence_of

MOST_NBYTES = 64 * 2**20
"""Bytes of a log that are read, from its end: a failed run says last why it failed."""
FORMS = ("text", "json", "markdown")


def read_log(file: Path) -> str:
    """Read the last MOST_NBYTES of a log; bytes that are no UTF-8 are replaced. Raises TargetError."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - MOST_NBYTES))
            return read_stream(stream)
    except OSError as error:
        raise TargetError(f"{file} cannot be read: {error.strerror}", "Name the log of the failed run.") from error


def read_stream(stream: IO[bytes]) -> str:
    """Read at most MOST_NBYTES of a log from a stream."""
    return stream.read(MOST_NBYTES).decode("utf-8", errors="replace")


def explain_text(log: str, form: str = "text") -> str:
    """Explain the failure in `log` in one of FORMS. Raises TargetError if no message in it is about memory."""
    return rendered(failure_in(log), form)


def rendered(failure: Failure, form: str) -> str:
    """Return the explanation in one of FORMS, with a newline at its end. Raises UsageError for another form."""
    if form == "text":
        return "\n".join(lines_of(failure)) + "\n"
    if form == "json":
        return json.dumps(failure.document(), indent=2) + "\n"
    if form == "markdown":
        first, *rest = lines_of(failure)
        sentence = sentence_of(failure)
        lines = "\n".join([first, *rest])
        return f"**{sentence[:1].upper()}{sentence[1:]}**\n\n```\n{lines}\n```\n"
    raise UsageError(f"a message has no form {form!r}", f"Write one of {', '.join(FORMS)}.")

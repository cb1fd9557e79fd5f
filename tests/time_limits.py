"""A time limit that is over when a test says so: nobody waits for seconds that pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.worker.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MARKS = "open({mark!r}, 'w').close()\n"
"""Code that says so, with the path of a file."""


def over_with(mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time limit of a Session in this process be over once the file `mark` is there, which is then removed.

    What it is given afterwards, to say what it has seen or to clean up, it has.
    """
    broken = Session._broken

    def broken_now(session: Session, *limits: object) -> object:
        if mark.exists():
            mark.unlink()
            session._deadline = 0.0
        return broken(session, *limits)

    monkeypatch.setattr(Session, "_broken", broken_now)

"""A time limit that is over when a test says so: nobody waits for seconds that pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.worker.child import STDOUT
from memlint.worker.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

SAYS = "time is over"
"""A script prints this, and flushes it, once its time is to be over."""


def is_said(session: Session) -> bool:
    """Return True if the script has printed `SAYS`."""
    return SAYS.encode() in session._exchange.beginning(STDOUT, 2**16)


def over_when(is_over: Callable[[Session], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time limit of each Session in this process be over when `is_over`, once.

    What it is given afterwards, to say what it has seen or to clean up, it has.
    """
    broken, ended = Session._broken, []

    def broken_now(session: Session, *limits: object) -> object:
        if session not in ended and is_over(session):
            ended.append(session)
            session._deadline = 0.0
        return broken(session, *limits)

    monkeypatch.setattr(Session, "_broken", broken_now)

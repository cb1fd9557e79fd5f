"""The time limit of a child waits while it compiles, and the command is told what it compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.base.exchange import Exchange
from memlint.config import Settings
from memlint.worker.child import COMPILING, FILES
from memlint.worker.protocol import Limits, Request
from memlint.worker.session import _MOST_COMPILING, Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    def start(*_: object) -> None:
        raise AssertionError("nothing is asked")

    request = Request(target="model.py", path=None, root=str(tmp_path), settings=Settings())
    made = Session(request, Limits(seconds=10.0), start)  # type: ignore[arg-type]
    made._exchange = Exchange(tmp_path, FILES, new=True)
    made.is_begun = True
    made.renew_time()
    return made


def test_the_limit_waits_while_the_child_compiles(session: Session) -> None:
    before = session._deadline
    session._wait_for_compiler(3.0)
    assert session._deadline == before
    session._exchange.say(COMPILING, b"compiling graph 1")
    session._wait_for_compiler(3.0)
    assert session._deadline == before + 3.0
    session._exchange.say(COMPILING, b"")
    session._wait_for_compiler(3.0)
    assert session._deadline == before + 3.0


def test_it_does_not_wait_for_ever(session: Session) -> None:
    before = session._deadline
    session._exchange.say(COMPILING, b"compiling")
    for _ in range(100):
        session._wait_for_compiler(10.0)
    assert session._deadline == before + 10.0 * _MOST_COMPILING


def test_what_is_compiled_is_told_once(session: Session) -> None:
    told: list[str] = []
    session.tell_compiling(told.append)
    for doing in (b"compiling", b"compiling graph 1", b"compiling graph 1", b""):
        session._exchange.say(COMPILING, doing)
        session._wait_for_compiler(0.1)
    assert told == ["compiling", "compiling graph 1", ""]

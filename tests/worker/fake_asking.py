"""Functions that ask the child of `fake_analyse`: the Result says what it answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.worker.protocol import Result
    from memlint.worker.session import Session


def ask(session: Session, **_look: object) -> Result:
    """Ask once; what the child has told counts where it fails."""
    from memlint.report.model import Skipped
    from memlint.worker.jobs import FindWorkloads, Text
    from memlint.worker.protocol import Result
    from memlint.worker.session import EndedError, JobError

    try:
        text = session.ask(FindWorkloads()).as_(Text).text
    except (EndedError, JobError, KeyboardInterrupt):
        session.keep(session.last_record(Result))
        raise
    return Result(torch="0.0", skipped=[Skipped(reason=text)])


def ask_for_another_kind(session: Session) -> Result:
    """Expect what the child does not answer with."""
    from memlint.worker.jobs import FindWorkloads, Found

    session.ask(FindWorkloads()).as_(Found)
    raise AssertionError("it is no Found")


def break_down(session: Session) -> Result:
    """Ask, and make a mistake with the answer."""
    ask(session)
    raise ValueError("a mistake")

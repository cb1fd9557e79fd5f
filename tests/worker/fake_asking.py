"""Functions that ask the child of `fake_analyse`: the Result says what it answered."""

from __future__ import annotations

import json
import os
from pathlib import Path

from memlint.report.model import Skipped
from memlint.worker.jobs import FindWorkloads, Found, Text
from memlint.worker.protocol import Result
from memlint.worker.session import EndedError, JobError, Session


def ask(session: Session, **_look: object) -> Result:
    """Ask once; what the child has told counts where it fails."""
    try:
        text = session.ask(FindWorkloads()).as_(Text).text
    except (EndedError, JobError, KeyboardInterrupt):
        session.keep(session.last_record(Result))
        raise
    return Result(torch="0.0", skipped=[Skipped(reason=text)])


def ask_for_result(session: Session, **_look: object) -> Result:
    """Write down what is asked for; the Result itself is what the code says."""
    with Path(os.environ["TEST_REQUESTS"]).open("a") as file:
        file.write(session.request.model_dump_json() + "\n")
    return Result.model_validate(json.loads(ask(session).skipped[0].reason) or {})


def ask_for_another_kind(session: Session) -> Result:
    """Expect what the child does not answer with."""
    session.ask(FindWorkloads()).as_(Found)
    raise AssertionError("it is no Found")


def break_down(session: Session) -> Result:
    """Ask, and make a mistake with the answer."""
    ask(session)
    raise ValueError("a mistake")

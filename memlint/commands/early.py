"""A child that imports PyTorch while the command still finds out what to ask it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memlint.capture.files import is_capture
from memlint.commands.asking import has_known_scripts
from memlint.worker.protocol import Request
from memlint.worker.task import Task

if TYPE_CHECKING:
    from memlint.worker.session import Session


@contextmanager
def early_session(requests: Sequence[Request], *, cache: bool) -> Iterator[Session | None]:
    """Give a Session whose child has been started, for an only request that needs one at once; None otherwise.

    There is none where answers are kept, where a script is asked before, and on a machine with one core, on which two
    processes are no faster than one.
    """
    request = requests[0] if len(requests) == 1 else None
    if request is None or not _may_start(request) or has_known_scripts(request, cache=cache):
        yield None
        return
    from memlint.worker.supervise import new_session  # noqa: PLC0415 -- a look at a file does without
    from memlint.worker.supervisor_pool import store_of  # noqa: PLC0415

    task = Task(request, request.limits(), _nothing, cache)
    store = store_of(task)
    if store is not None and store.is_valid:
        yield None
        return
    with new_session(task, store=store) as session:
        session.start_early()
        yield session


def _may_start(request: Request) -> bool:
    if request.script is not None or not request.is_utf8 or is_capture(request.path or "") or (os.cpu_count() or 1) < 2:
        return False
    return importlib.util.find_spec("torch") is not None


def _nothing(_session: Session) -> None:
    """Ask nothing: who has the Session does."""

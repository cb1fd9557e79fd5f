"""A child that imports PyTorch while the command still finds out what to ask it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memlint.capture.files import is_capture
from memlint.commands.asking import has_known_scripts
from memlint.worker.protocol import Request, Result
from memlint.worker.task import Task

if TYPE_CHECKING:
    from memlint.worker.session import Session


@contextmanager
def early_session(requests: Sequence[Request], *, cache: bool) -> Iterator[Session | None]:
    """Give the Session of an only request; None for several, for a script, and on a machine with one core.

    Its child is started, unless answers are kept or a script is known that is asked before. On one core two processes
    are no faster than one.
    """
    request = requests[0] if len(requests) == 1 else None
    if request is None or not _may_start(request):
        yield None
        return
    from memlint.worker.supervise import new_session  # noqa: PLC0415 -- a look at a file does without
    from memlint.worker.supervisor_pool import store_of  # noqa: PLC0415

    task = Task(request, request.limits(), _nothing, cache)
    store = store_of(task)
    is_known = store is not None and store.is_valid
    with new_session(task, store=store) as session:
        if not is_known and not has_known_scripts(request, cache=cache):
            session.start_early()
        yield session


def _may_start(request: Request) -> bool:
    if (
        request.script is not None
        or request.settings.rule_paths
        or not request.is_utf8
        or is_capture(request.path or "")
        or (os.cpu_count() or 1) < 2
    ):
        return False
    return importlib.util.find_spec("torch") is not None


def _nothing(_session: Session) -> Result:
    """Ask nothing: the command asks what it wants to know."""
    return Result()

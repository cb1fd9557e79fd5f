"""A task: what is asked of one child, and by whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from memlint.worker.protocol import AnyResult, Limits, Request
    from memlint.worker.session import Session

CHILD = "memlint.session.main"
"""Named and not imported: it needs torch."""


class Task(NamedTuple):
    """A Request, what its child may take, and who asks the child."""

    request: Request
    limits: Limits
    ask: Callable[[Session], AnyResult]
    """Picklable: it may be called in another process."""
    cache: bool = False
    """True if answers of earlier children count, and new ones are kept for later."""
    child: str = CHILD
    """The module whose `main` its child runs, or `begin` after `preload` where that is a copy of a server."""

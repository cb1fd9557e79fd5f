"""Errors that a script catches, shows and ends after, as runners do that log whatever their program raises."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memlint.base.frames import user_lines
from memlint.base.patching import in_place_of
from memlint.script.ending import ending_of

if TYPE_CHECKING:
    from memlint.base.patching import Patch
    from memlint.targets.script import Ending

_MOST_LOOKED_AT = 64
"""Errors of which the lines are looked at: a script may show one for each sample."""


class ShownErrors:
    """Remembers the last error whose traceback a script formats while it handles it."""

    def __init__(self, is_over: Callable[[], bool], has_called: Callable[[], bool]) -> None:
        """`is_over` is True once the script has trained; once it `has_called` a model, frames may hold its tensors."""
        self._is_over, self._has_called = is_over, has_called
        self._num, self._is_noting = 0, False
        self.error: BaseException | None = None
        """The error, if nothing that it holds can be on the GPU."""
        self.ending: Ending | None = None
        """The words for it, where it may hold something on the GPU."""

    def patches(self) -> list[Patch]:
        """Return the patch of what all functions of `traceback`, and `logging`, format an error by."""
        init = traceback.TracebackException.__init__

        @in_place_of(init)
        def formatting(self_: Any, kind: Any, error: Any, *args: Any, **kwargs: Any) -> None:
            init(self_, kind, error, *args, **kwargs)
            handled = sys.exc_info()[1]
            if handled is not None and handled is error and not self._is_noting:
                self._note(handled)

        return [(traceback.TracebackException, "__init__", formatting)]

    def _note(self, error: BaseException) -> None:
        if self._is_over() or self._num >= _MOST_LOOKED_AT or error is self.error:
            return
        self._num += 1
        if not any(user_lines(error)):
            return
        self.error = self.ending = None
        if not self._has_called():
            self.error = error
            return
        self._is_noting = True  # what is said of it shows it once more
        self.ending = ending_of(error)
        self._is_noting = False

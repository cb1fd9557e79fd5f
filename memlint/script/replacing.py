"""Attributes of modules and classes that have another value for as long as a script runs."""

import contextlib
from typing import Any

from memlint.base.patching import patched


class Replacing(contextlib.ExitStack):
    """An ExitStack whose `put` replaces attributes, also while the script runs; it undoes that when it is left."""

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Let `owner.name` be `value` until the end."""
        self.enter_context(patched([(owner, name, value)]))

"""Attributes of modules and classes that have another value while a script runs."""

import contextlib
from typing import Any

from memlint.base.patching import patched


class Replacing(contextlib.ExitStack):
    """An ExitStack whose `put` replaces attributes, also while the script runs; on exit it restores them."""

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` to `value` until the end."""
        self.enter_context(patched([(owner, name, value)]))

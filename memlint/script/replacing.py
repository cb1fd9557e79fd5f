"""Attributes of modules and classes that have another value for as long as a script runs."""

from __future__ import annotations

from typing import Any

_MISSING = object()


class Replacing:
    """A context manager whose `put` replaces attributes; when it is left they are what they were."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Let `owner.name` be `value` until the end."""
        self._replaced.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def __enter__(self) -> Replacing:
        return self

    def __exit__(self, *_: object) -> None:
        while self._replaced:
            owner, name, value = self._replaced.pop()
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)

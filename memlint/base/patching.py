"""Attributes of objects, replaced for the duration of a block."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

Patch: TypeAlias = "tuple[Any, str, Any]"
"""Owner and name of an attribute, and its value inside the block."""


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Replace attributes inside the block; an attribute that its owner inherited is inherited again afterwards."""
    with ExitStack() as exits:
        for owner, name, value in patches:
            if name in owner.__dict__:
                exits.callback(setattr, owner, name, owner.__dict__[name])
            else:
                exits.callback(delattr, owner, name)
            setattr(owner, name, value)
        yield

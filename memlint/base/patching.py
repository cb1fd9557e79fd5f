"""Attributes of objects, replaced for the duration of a block."""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from memlint.base.signatures import signature_of

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


def in_place_of(original: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a replacement the names and the signature of `original`.

    Programs with registries choose arguments by what `inspect.getfullargspec` says, which ignores `functools.wraps`.
    """

    def named(replacement: Callable[..., Any]) -> Callable[..., Any]:
        replacement.__signature__ = signature_of(original)  # type: ignore[attr-defined]
        return functools.wraps(original)(replacement)

    return named

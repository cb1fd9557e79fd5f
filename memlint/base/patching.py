"""Attributes of objects, replaced for the duration of a block."""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from memlint.base.signatures import signature_of

Patch: TypeAlias = "tuple[Any, str, Any]"
"""Owner and name of an attribute, and its value inside the block."""
_INHERITED = object()


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Replace attributes inside the block; an attribute that its owner inherited is inherited again afterwards."""
    before: list[Patch] = []  # no ExitStack: there are hundreds of patches in each simulation
    try:
        for owner, name, value in patches:
            before.append((owner, name, vars(owner).get(name, _INHERITED)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            if vars(owner).get(name, _INHERITED) is value:
                continue
            if value is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def in_place_of(original: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a replacement the names and the signature of `original`.

    Programs with registries choose arguments by what `inspect.getfullargspec` says, which ignores `functools.wraps`.
    """

    def named(replacement: Callable[..., Any]) -> Callable[..., Any]:
        replacement.__signature__ = signature_of(original)  # type: ignore[attr-defined]
        return functools.wraps(original)(replacement)

    return named

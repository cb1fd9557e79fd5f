"""Python's garbage collection of reference cycles, disabled for a while."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = 100_000
"""Objects made before a collection, where what is imported or parsed stays: Python's own 700 begin hundreds."""


_OF_PYTHON = 2_000
"""More objects than Python freezes itself when it starts, 375 in 3.12, and fewer than any program has."""


class _Frozen:
    """Objects that the owner of the process froze; module state."""

    is_known = False


def frozen_by_owner() -> bool:
    """Return True if the owner of the process called `gc.freeze`, which is for good: no object can be thawed alone.

    Python counts all frozen objects for an answer, which takes longer than a small trace; so True is kept.
    """
    _Frozen.is_known = _Frozen.is_known or gc.get_freeze_count() > _OF_PYTHON
    return _Frozen.is_known


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection inside the block.

    A collection takes longer the more objects exist, and can start anywhere.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def long_lived() -> Iterator[None]:
    """Disable garbage collection inside the block, and let later collections, but for full ones, leave its objects out.

    For blocks that import, decode or parse, of whose objects nearly all stay.
    """
    with uncollected():
        yield
        # Before collections are enabled: the next object would begin one of all that is new.
        if not frozen_by_owner():  # else the owner of the process has frozen objects for good
            gc.freeze()
            gc.unfreeze()  # into the oldest generation


def collect_seldom() -> None:
    """Let garbage collection seldom begin in this process from now on: many objects are made that stay.

    Memory of what does not stay is still given back, in larger portions.
    """
    gc.set_threshold(_SELDOM)

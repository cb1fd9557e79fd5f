"""Plugins that could not be loaded in this process, each with the reason.

What was computed without them is not kept for another time: their authors may mend them in place.
"""

GROUP = "memlint.libraries"
"""Entry points of plugins for packages: each is called as the package it is for."""

_reasons: dict[str, None] = {}


def add(reason: str) -> None:
    """Remember that a plugin could not be loaded."""
    _reasons.setdefault(reason)


def reasons() -> tuple[str, ...]:
    """Give the reasons, the first first."""
    return tuple(_reasons)

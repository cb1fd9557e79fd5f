"""Where the allocations a Trace predicts and those a device saw part, in order."""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlint.validate.measurement import Allocation


class Difference(NamedTuple):
    """A run of allocations that only one side has, or that are others on both sides."""

    predicted: tuple[Allocation, ...]
    measured: tuple[Allocation, ...]

    @property
    def nbytes(self) -> int:
        """How many bytes more were measured than predicted."""
        return sum(a.nbytes for a in self.measured) - sum(a.nbytes for a in self.predicted)


def differences(predicted: Sequence[Allocation], measured: Sequence[Allocation]) -> list[tuple[Difference, int]]:
    """Every Difference with the times it comes, in the order of its first.

    Allocations are matched by size and phase: operators have one name where they are called and another where they
    allocate.
    """
    here, there = ([(a.nbytes, a.phase) for a in side] for side in (predicted, measured))
    start = _common(here, there)
    end = _common(here[start:][::-1], there[start:][::-1])
    here, there = here[start : len(here) - end], there[start : len(there) - end]
    matcher = SequenceMatcher(None, here, there, autojunk=False)
    found = Counter(
        Difference(tuple(predicted[start + i1 : start + i2]), tuple(measured[start + j1 : start + j2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    )
    return list(found.items())


def _common(first: Sequence[object], second: Sequence[object]) -> int:
    """How many items both begin with."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))

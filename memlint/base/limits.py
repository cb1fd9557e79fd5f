"""Whether bytes, of which only bounds may be known, stay within a limit."""

from __future__ import annotations

from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["fits", "does not fit", "uncertain"]


def outcome(low: int, high: int, limit: int) -> Outcome:
    """`uncertain` where the limit lies between the bounds."""
    return "fits" if high <= limit else "does not fit" if low > limit else "uncertain"

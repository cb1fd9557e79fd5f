"""How a benchmark says whether a claim held in a run. `performance.py` reads these lines."""

from __future__ import annotations

HELD, MISSED = "Held: ", "Missed: "


def verdict(claim: str, measured: str, *, held: bool) -> None:
    """Print what was claimed, with its limit, and what was measured."""
    print(f"\n{HELD if held else MISSED}{claim}; measured: {measured}")

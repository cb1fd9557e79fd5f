"""What a Ledger says is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.accelerator.ledger import Ledger


def sizes(ledger: Ledger) -> list[int]:
    """Bytes of every GPU storage alive now, in order of birth."""
    alive: dict[int, int] = {}
    for event in ledger.events:
        if event >= 0:
            alive[event] = ledger.births[event].nbytes
        else:
            del alive[~event]
    return list(alive.values())


def live(ledger: Ledger) -> int:
    """GPU bytes alive now."""
    return sum(sizes(ledger))


def peak(ledger: Ledger) -> int:
    """The most GPU bytes that were alive at once."""
    now = most = 0
    for event in ledger.events:
        now += ledger.births[event].nbytes if event >= 0 else -ledger.births[~event].nbytes
        most = max(most, now)
    return most

"""The memory that a generation keeps for its tokens: bytes of its caches after each round, and of each token."""

from itertools import pairwise
from typing import NamedTuple

from memlint.memory.records import Category, Phase, Round, Trace


class Kept(NamedTuple):
    """The caches of the last generation of a Trace, in bytes."""

    after_rounds: tuple[int, ...]
    """Bytes after the prefill, then after each further token."""

    @property
    def nbytes(self) -> int:
        """Bytes after the last token."""
        return self.after_rounds[-1] if self.after_rounds else 0

    @property
    def per_token(self) -> int:
        """Bytes by which the last token made them grow; 0 of caches with a fixed size."""
        return max(0, self.after_rounds[-1] - self.after_rounds[-2]) if len(self.after_rounds) > 1 else 0


def kept_tokens(trace: Trace) -> Kept | None:
    """Return the caches of the last generation; None where nothing was generated."""
    if not trace.rounds:
        return None
    return Kept(tuple(_nbytes_at(trace, [each.end for each in last_generation(trace)])))


def last_generation(trace: Trace) -> tuple[Round, ...]:
    """Return the rounds of the last generation of a Trace that has one."""
    phases = [trace.nodes[each.node].phase if each.node < len(trace.nodes) else None for each in trace.rounds]
    return trace.rounds[max((number for number, phase in enumerate(phases) if phase is Phase.PREFILL), default=0) :]


def _nbytes_at(trace: Trace, positions: list[int]) -> list[int]:
    """Sum the bytes of caches that are open before each of these positions in the events, which ascend."""
    sizes = {b.id: b.nbytes for b in trace.buffers if b.category is Category.KV_CACHE}
    totals, total = [], 0
    for start, end in pairwise((0, *positions)):
        for event in trace.events[start:end]:
            total += sizes.get(event, 0) if event >= 0 else -sizes.get(~event, 0)
        totals.append(total)
    return totals

"""One verdict about a failure: why it happened, by what the recording shows."""

from fractions import Fraction
from typing import Final, Literal, NamedTuple, TypeAlias

from memlint.base.units import format_nbytes
from memlint.explain.recordings.failure import Failure
from memlint.explain.recordings.steps import Growth
from memlint.memory.devices import Device

Cause: TypeAlias = Literal["too much alive", "fragmentation", "leak", "spike", "another process", "a limit", "none"]

_SPIKE: Final = Fraction(1, 4)
"""Share of the capacity from which on a single request is a spike."""
_OTHER_PROCESS: Final = 2**29
"""Bytes that nobody accounts for from which on another process is meant: no context varies as much."""


class Verdict(NamedTuple):
    """The cause and the sentence that says it."""

    cause: Cause
    sentence: str
    next_step: str
    """The advice."""


def verdict_of(failure: Failure, growth: Growth | None, line: str, growing: str, device: Device | None) -> Verdict:
    """Judge a failure.

    `line` is where the request was made, `growing` where what grows is made, empty if that is not known; `device` is
    the card if the user named it. The first of these that holds is the cause: the driver had enough memory; what grew
    from step to step exceeds what was lacking; a card named by the user has more memory than this process could have;
    what was alive would have fitted without gaps; the request alone is a quarter of the memory; the rest.
    """
    request, at = format_nbytes(failure.request), f" at {line}" if line else ""
    if failure.driver_had_enough:
        return Verdict(
            "a limit",
            f"a limit refused {request}{at}: the GPU had {format_nbytes(failure.free)} free",
            "Look for set_per_process_memory_fraction, per_process_memory_fraction and limits of MIG or MPS.",
        )
    lacking = failure.lacking
    if growth is not None and growth.nbytes >= max(lacking, 0) and growth.nbytes > 0 and lacking > 0:
        return Verdict(
            "leak",
            f"a leak: each step leaves {format_nbytes(growth.per_step)} more alive{_at(growing)}, "
            f"{format_nbytes(growth.nbytes)} by then, and {format_nbytes(lacking)} were lacking",
            "Find what refers to it after the step: a list, a dict, an attribute, a loss that is summed as a tensor.",
        )
    if device is not None:
        elsewhere = device.total_nbytes - failure.capacity - device.context_high
        if elsewhere > _OTHER_PROCESS and failure.lacking <= elsewhere:
            return Verdict(
                "another process",
                f"another process: of the {format_nbytes(device.total_nbytes)} of {device.title} this one could have "
                f"{format_nbytes(failure.capacity)}; without the other, {request}{at} would have been there",
                "See who it is with nvidia-smi, and end it or take another GPU.",
            )
    if lacking <= 0:
        return Verdict(
            "fragmentation",
            f"fragmentation: {request} were asked for{at}, {format_nbytes(failure.cached)} were reserved and not "
            f"allocated, in {failure.num_free_blocks} pieces of at most {format_nbytes(failure.largest_free)}",
            "Try other settings of the allocator.",
        )
    if failure.request >= _SPIKE * failure.capacity:
        return Verdict(
            "spike",
            f"a spike: one request of {request}{at}, beside {format_nbytes(failure.allocated)} alive on "
            f"{format_nbytes(failure.capacity)}; {format_nbytes(lacking)} were lacking",
            "Compute it in parts, or free what it is made from first.",
        )
    return Verdict(
        "too much alive",
        f"too much alive: {format_nbytes(failure.allocated)} were in use when {request} more were asked for{at}, on "
        f"{format_nbytes(failure.capacity)}; {format_nbytes(lacking)} were lacking, which no setting of the allocator "
        "gives",
        "Hold less at once: a smaller batch, checkpointing, a smaller dtype; below stands what holds the most.",
    )


def _at(line: str) -> str:
    return f" at {line}" if line else ""

"""Tensors that something keeps alive at the peak although nothing reads them again."""

from collections.abc import Iterable

from memlint.lint.rule import Context
from memlint.memory.liveness import dead_at, held, origin
from memlint.memory.records import Buffer, Category
from memlint.memory.timeline import peak_event
from memlint.whatif.changes.drop_reference import drop_references
from memlint_rules.support.flow import MIN_NBYTES, peak_change

_KEPT_ON_PURPOSE = frozenset({Category.INPUT, Category.GRADIENT})


def dead_at_peak(context: Context) -> list[Buffer]:
    """Return the Buffers alive at the peak after their last use, without small storages such as losses and counters."""
    dead = dead_at(context.trace, peak_event(context.timeline)) if context.timeline.events else ()
    return [each for each in dead if each.category not in _KEPT_ON_PURPOSE and each.nbytes >= MIN_NBYTES]


def change_without(context: Context, buffers: Iterable[Buffer]) -> int:
    """Return the change of the peak in bytes if these Buffers, and those alike in every step, die after last use."""
    origins = {origin(buffer) for buffer in buffers}
    return peak_change(context.timeline, drop_references(context.timeline, held(context.trace), origins))


def nbytes_of(buffers: Iterable[Buffer]) -> int:
    """Return the sum of bytes."""
    return sum(buffer.nbytes for buffer in buffers)


def biggest_of(buffers: Iterable[Buffer]) -> Buffer:
    """Return the first of the largest Buffers."""
    return max(buffers, key=lambda buffer: buffer.nbytes)


def described(buffer: Buffer) -> str:
    """Return dtype, shape, and the line that allocated it."""
    made = f", made at {buffer.frame}" if buffer.frame else ""
    return f"{buffer.dtype} {list(buffer.shape)}{made}"

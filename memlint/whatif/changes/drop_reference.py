"""Variables that drop a tensor after its last use: an edit of lifetimes."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

from memlint.memory.liveness import Origin, held, origin
from memlint.memory.records import Buffer, Category, Trace
from memlint.memory.timeline import Timeline, end_at
from memlint.whatif.change import Change, Effect, Names, NotApplicableError

MIN_NBYTES = 2**20
"""Smallest Buffer in bytes that is worth reporting when only a variable holds it."""


@dataclass(frozen=True, slots=True)
class DropReference(Change):
    """Drop the Buffers of these origins right after their last use, in every step."""

    origins: tuple[Origin, ...]
    effect: ClassVar[Effect] = Effect.EXACT
    is_edit: ClassVar[bool] = True

    def describe(self, names: Names) -> str:
        return f"let go of {', '.join(names.of_buffer(each) for each in self.origins)} after its last use"

    def edit(self, timeline: Timeline, trace: Trace) -> Timeline:
        return drop_references(timeline, held(trace), self.origins)


def drop_references(timeline: Timeline, held_buffers: Iterable[Buffer], origins: Collection[Origin]) -> Timeline:
    """Return the Timeline with every held Buffer of these origins closed right after its last use.

    Other holders of such a Buffer are ignored. Raises NotApplicableError if none outlives its last use.
    """
    cuts = {buffer.id: buffer.last_used for buffer in held_buffers if origin(buffer) in origins}
    if not cuts:
        raise NotApplicableError
    return end_at(timeline, cuts)


def dead_references(trace: Trace, node: int) -> tuple[Buffer, ...]:
    """Return the Buffers alive while `node` runs that nothing uses from there on, if they are worth dropping."""
    return tuple(
        buffer
        for buffer in held(trace)
        if buffer.nbytes >= MIN_NBYTES
        and buffer.last_used < node
        and trace.event_nodes[buffer.born] <= node
        and (buffer.died is None or trace.event_nodes[buffer.died] > node)
        and buffer.category not in {Category.INPUT, Category.GRADIENT}
    )

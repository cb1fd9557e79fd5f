"""Buffers that are still needed, and Buffers that eager Python keeps alive beyond their last use."""

from collections import defaultdict
from typing import TypeAlias

from memlint.memory.records import Buffer, Category, Frame, Phase, Trace

Origin: TypeAlias = "tuple[str, Frame | None, str, tuple[int, ...], str, Phase]"
"""Key of a storage that is the same in every step, and in other traces of the program."""

KEPT_FOR_GOOD = frozenset({Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE, Category.WORKSPACE})


def origin(buffer: Buffer) -> Origin:
    """Return kernel, line, module, shape, dtype and phase that made a Buffer."""
    return buffer.op, buffer.frame, buffer.module, buffer.shape, buffer.dtype, buffer.phase


def held(trace: Trace) -> tuple[Buffer, ...]:
    """Return the Buffers alive while a Node ran that came after their last use, in order of birth.

    Buffers that a training loop keeps on purpose are left out: parameters, buffers, optimizer state, workspaces, and
    any that outlives the trace after use in a step later than the one it was made in.
    """
    last_node = len(trace.nodes) - 1

    def is_held(buffer: Buffer) -> bool:
        if buffer.category in KEPT_FOR_GOOD or _serves_every_step(trace, buffer):
            return False
        return buffer.last_used < (last_node if buffer.died is None else trace.event_nodes[buffer.died])

    return tuple(filter(is_held, (trace.buffers[event] for event in trace.events if event >= 0)))


def dead_at(trace: Trace, event: int) -> tuple[Buffer, ...]:
    """Return those of the held Buffers that are alive after `event` and not used by its Node nor by any later one."""
    node = trace.event_nodes[event]
    return tuple(
        buffer
        for buffer in held(trace)
        if buffer.born <= event and (buffer.died is None or buffer.died > event) and buffer.last_used < node
    )


def least_peak(trace: Trace) -> int:
    """Return the peak of requested bytes if every Buffer died right after its last use, as `held` understands it.

    This frees earlier: Buffers that Python variables hold, gradients that the optimizer has read, and inputs that each
    step makes for itself. Parameters, buffers, optimizer state, workspaces and Buffers used in every step stay.
    """
    early = held(trace)
    closings = {~buffer.id for buffer in early}
    freed: defaultdict[int, int] = defaultdict(int)
    """Bytes last used at each Node."""
    for buffer in early:
        freed[buffer.last_used] += buffer.nbytes
    nodes = iter(sorted(freed))
    node = next(nodes, None)
    live = most = 0
    for event, running in zip(trace.events, trace.event_nodes, strict=True):
        while node is not None and node < running:
            live -= freed[node]
            node = next(nodes, None)
        if event >= 0:
            live += trace.buffers[event].nbytes
            most = max(most, live)
        elif event not in closings:
            live -= trace.buffers[~event].nbytes
    return most


def _serves_every_step(trace: Trace, buffer: Buffer) -> bool:
    if buffer.died is not None:
        return False
    return buffer.step < 0 or (buffer.last_used >= 0 and trace.nodes[buffer.last_used].step > buffer.step)

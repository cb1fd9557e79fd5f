"""Collective traffic of a rank in a step, by kind of collective and by size of the group."""

from typing import NamedTuple

from memlint.base.grouping import grouped
from memlint.memory.communicators import SYMMETRIC
from memlint.memory.records import Collective, Phase, Trace

_ROUNDS = {"all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "scatter": 1, "all_reduce": 2}
"""Rounds in which each rank passes on all parts but its own: doc/PERFORMANCE.md of NVIDIA/nccl-tests."""


class Traffic(NamedTuple):
    """Equal collectives of a step."""

    kind: str
    size: int
    """Number of ranks in each group."""
    within_node: bool
    calls: int
    nbytes: int
    """Bytes of the tensors that are gathered, reduced or sent, in full."""
    sent: int
    """Bytes that this rank sends over its links, in a ring."""


def sent(collective: Collective) -> int:
    """Bytes that a rank sends for it, in a ring."""
    whole = max(collective.nbytes_in, collective.nbytes_out)
    if collective.kind in _ROUNDS:
        return _ROUNDS[collective.kind] * whole * (collective.size - 1) // collective.size
    return 0 if collective.kind in ("recv", "barrier") or collective.size == 1 else collective.nbytes_in


def _start_of_last_step(trace: Trace) -> int:
    """Return the first Node of the last step.

    A script may end right after the optimizer: then the end of the step before is included, as it stands for the
    missing end.
    """
    first = trace.step_nodes[-1] if trace.step_nodes else 0
    if len(trace.step_nodes) < 2 or trace.nodes[-1].phase is not Phase.OPTIMIZER:
        return first
    before = range(first - 1, trace.step_nodes[-2] - 1, -1)
    return next((number + 1 for number in before if trace.nodes[number].phase is Phase.OPTIMIZER), first)


def traffic(trace: Trace) -> list[Traffic]:
    """Group the collectives of the last step, most bytes first."""
    first = _start_of_last_step(trace)
    last_step = (each for each in trace.collectives if each.node >= first and each.backend != SYMMETRIC)
    alike = grouped(((each.kind, each.size, each.within_node), each) for each in last_step)
    rows = [
        Traffic(*key, len(group), sum(max(c.nbytes_in, c.nbytes_out) for c in group), sum(map(sent, group)))
        for key, group in alike.items()
    ]
    return sorted(rows, key=lambda row: (-row.nbytes, row.kind))

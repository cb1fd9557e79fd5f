"""The search for the rank that takes the most memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.communicators import beside
from memlint.memory.estimate import estimate
from memlint.memory.records import Assumption
from memlint.memory.timeline import Timeline
from memlint.targets.workload import WORST, Workload
from memlint.tracing.workload_errors import trace_of_workload
from memlint.workloads.construction.construct import complete, completed_program


class Ranked(NamedTuple):
    """A Workload of one rank, and an assumption with the peaks of all tried ranks."""

    workload: Workload
    assumptions: tuple[Assumption, ...] = ()


def of_worst_rank(workload: Workload, root: Path) -> Ranked:
    """Replace the rank `worst` by the first, middle or last rank, whichever takes most memory.

    In a pipeline these are the first stage, one in the middle, and the last. Passes on exceptions of tracing.
    """
    if workload.rank != WORST:
        return Ranked(workload)
    device, settings = workload.device, AllocatorSettings.parse(workload.allocator)
    peaks: dict[int, int] = {}
    for number in sorted({0, workload.world_size // 2, workload.world_size - 1}):
        completed, _assumptions = complete(replace(workload, rank=number, compile="off"), root)
        trace = trace_of_workload(completed_program(completed, root), device, settings)
        most = estimate(Timeline.of(trace), beside(device, trace.collectives), trace.nodes, settings)
        peaks[number] = most.device.estimate if device.is_cuda else most.requested.estimate
    worst = max(peaks, key=peaks.__getitem__)
    others = ", ".join(f"rank {number} {format_nbytes(nbytes)}" for number, nbytes in peaks.items())
    text = f"rank {worst} is the worst of the first, the middle and the last of {workload.world_size} ranks: {others}"
    return Ranked(replace(workload, rank=worst), (Assumption(text, None),))

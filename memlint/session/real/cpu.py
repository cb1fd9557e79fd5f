"""What a step on the CPU allocates, to the byte, by the profiler's memory events. Sizes are bytes."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from memlint.base.errors import WorkerError
from memlint.base.garbage import uncollected
from memlint.memory.records import Phase

if TYPE_CHECKING:
    from torch._C._profiler import _ProfilerEvent

    from memlint.tracing.recorder import Program  # it changes PyTorch, which a step on a real device must not see

SETUP = "memlint: setup"
STEP = "memlint: step"
_OPTIMIZER = "Optimizer.step#"  # torch.optim.Optimizer.profile_hook_step
_BACKWARD = "autograd::engine::evaluate_function"  # torch/csrc/autograd/engine.cpp


class IncompleteProfileError(WorkerError):
    """The profiler lost events: a recorded running total is not the sum of the recorded sizes."""


class MemoryEvent(NamedTuple):
    """One call of the CPU allocator."""

    nbytes: int
    """Positive when memory was taken, negative when it was given back."""
    total: int
    """Live bytes after it, of those taken since before `setup()`."""
    operators: tuple[str, ...]
    """Operators, autograd nodes and marks that were running, outermost first; the first says setup or which step."""
    address: int

    @property
    def op(self) -> str:
        """Innermost operator that was running; empty between operators."""
        return self.operators[-1] if self.operators else ""

    @property
    def step(self) -> int:
        """The step, counted from 0; -1 during the setup and between steps."""
        mark = self.operators[0] if self.operators else ""
        return int(mark.removeprefix(STEP)) if mark.startswith(STEP) else -1

    @property
    def phase(self) -> Phase:
        """The part of the step."""
        if self.step < 0:
            return Phase.OTHER
        if any(name.startswith(_OPTIMIZER) for name in self.operators):
            return Phase.OPTIMIZER
        return Phase.BACKWARD if any(name.startswith(_BACKWARD) for name in self.operators) else Phase.FORWARD


@dataclass(frozen=True)
class CpuMeasurement:
    """Every allocation from the start of `setup()` to the end of the last step."""

    events: tuple[MemoryEvent, ...]
    num_steps: int

    @property
    def peak_nbytes(self) -> int:
        """The most bytes alive at once, of those taken since before `setup()`."""
        return max((e.total for e in self.events), default=0)

    @property
    def peak_event(self) -> MemoryEvent | None:
        """The first event after which most bytes are alive."""
        return max(self.events, key=lambda e: e.total, default=None)

    def step_events(self, step: int) -> tuple[MemoryEvent, ...]:
        """The events of one step, counted from 0; frees between two steps belong to neither."""
        return tuple(e for e in self.events if e.step == step)

    def phase_peaks(self) -> dict[Phase, int]:
        """The most bytes alive when something was taken in each phase."""
        peaks: dict[Phase, int] = {}
        for event in self.events:
            if event.nbytes > 0:  # what a phase only gives back belongs to the one before
                peaks[event.phase] = max(peaks.get(event.phase, 0), event.total)
        return peaks

    def step_peaks(self) -> list[int]:
        """The most bytes alive when something was taken in each step."""
        peaks = [0] * self.num_steps
        for event in self.events:
            if event.nbytes > 0 and event.step >= 0:
                peaks[event.step] = max(peaks[event.step], event.total)
        return peaks


def measure_cpu_step(program: Program, num_steps: int = 2, num_threads: int | None = 1) -> CpuMeasurement:
    """Run `setup()` and the steps on the CPU and record what its allocator did.

    One thread by default: several kernels take one scratch buffer per thread, and the profiler does not see what
    OpenMP's workers take. None leaves the number of threads alone. Raises IncompleteProfileError.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads or before)
    gc.collect()  # so that no collection happens at a moment that changes from run to run
    try:
        with uncollected(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            with record_function(SETUP):
                program.setup()
            for step in range(num_steps):
                with record_function(f"{STEP} {step}"):
                    program.step()
    finally:
        torch.set_num_threads(before)
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    return CpuMeasurement(_live_events(profiler.profiler.kineto_results.experimental_event_tree()), num_steps)


class _Allocation(NamedTuple):
    time: int
    nbytes: int
    address: int
    total_in_process: int
    operators: tuple[str, ...]


def _live_events(tree: Sequence[_ProfilerEvent]) -> tuple[MemoryEvent, ...]:
    allocations = sorted(_allocations(tree, ()), key=lambda a: a.time)
    for before, after in pairwise(allocations):
        if after.total_in_process != before.total_in_process + after.nbytes:
            raise IncompleteProfileError(
                f"the profiler lost memory events: {after.operators}: {before} then {after}", "Measure it again."
            )
    live: dict[int, int] = {}
    events, total = [], 0
    for allocation in allocations:
        if allocation.nbytes > 0:
            live[allocation.address] = allocation.nbytes
        elif live.pop(allocation.address, None) is None:
            continue  # taken before this profile, by an earlier one in the process
        total += allocation.nbytes
        events.append(MemoryEvent(allocation.nbytes, total, allocation.operators, allocation.address))
    return tuple(events)


def _allocations(events: Sequence[_ProfilerEvent], operators: tuple[str, ...]) -> Iterator[_Allocation]:
    for event in events:
        fields = event.extra_fields
        if isinstance(fields, torch._C._profiler._ExtraFields_Allocation):
            if fields.device.type == "cpu" and fields.ptr is not None and fields.total_allocated is not None:
                yield _Allocation(event.start_time_ns, fields.alloc_size, fields.ptr, fields.total_allocated, operators)
        else:
            yield from _allocations(event.children, (*operators, event.name))

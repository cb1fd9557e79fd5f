"""Memory that a step on a GPU allocates, by PyTorch's own counters. Sizes are bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

import torch

from memlint.accelerator.private import nvml_index, record_history, snapshot
from memlint.base.errors import UsageError
from memlint.memory.records import Phase
from memlint.validate.history import compact_history
from memlint.validate.measurement import Peaks

if TYPE_CHECKING:
    from memlint.tracing.recorder import Program  # importing it changes PyTorch; a real step must not see that

_STATS = {
    "requested": "requested_bytes.all.peak",
    "allocated": "allocated_bytes.all.peak",
    "active": "active_bytes.all.peak",
    "reserved": "reserved_bytes.all.peak",
}
"""Keys of `torch.cuda.memory_stats`."""

HISTORY_EVENTS = 1_000_000
"""Maximum number of events in the allocator's history; a step has about ten thousand."""


@dataclass
class Meter:
    """Reads the peaks of the caching allocator phase by phase and step by step.

    `enter` is called at each change of phase: the peaks since the previous call belong to the phase that ends. PyTorch
    counts at each request for memory, on the requesting thread, so no synchronisation is needed.
    """

    phase: Phase = Phase.OTHER
    step: int = -1
    phases: dict[Phase, Peaks] = field(default_factory=dict)
    steps: list[Peaks] = field(default_factory=list)
    total: Peaks | None = None
    peak_phase: Phase = Phase.OTHER
    num_allocations: int = 0

    def __post_init__(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def enter(self, phase: Phase) -> None:
        """Begin `phase`."""
        stats = torch.cuda.memory_stats()
        peaks = Peaks.model_validate({name: stats.get(key, 0) for name, key in _STATS.items()})
        torch.cuda.reset_peak_memory_stats()
        if self.total is None or peaks.requested > self.total.requested:
            self.peak_phase = self.phase
        self.total = peaks.highest(self.total)
        num_allocations = stats.get("allocation.all.allocated", 0)
        if num_allocations > self.num_allocations:  # as in a Trace, a phase without allocations has no peak
            self.phases[self.phase] = peaks.highest(self.phases.get(self.phase))
        self.num_allocations = num_allocations
        if self.step >= 0:
            self.steps[self.step] = peaks.highest(self.steps[self.step])
        self.phase = phase

    def begin_step(self) -> None:
        """Begin a step, with its forward."""
        self.enter(Phase.FORWARD)
        self.step += 1
        self.steps.append(Peaks(requested=0, allocated=0, active=0, reserved=0))


@dataclass(frozen=True)
class CudaMeasurement:
    """Figures of the allocator's counters and NVML for a run, and the allocator's history if asked for."""

    peaks: Peaks
    phases: dict[Phase, Peaks]
    steps: list[Peaks]
    peak_phase: Phase
    num_retries: int
    history: dict[str, Any] | None


def require_cuda() -> None:
    """Raise UsageError if PyTorch sees no GPU."""
    if not torch.cuda.is_available():
        built = "this PyTorch is built without CUDA" if torch.version.cuda is None else "PyTorch sees no GPU"
        raise UsageError(f"--device cuda: {built}", "Run it on a machine with a GPU, or give --device cpu.")


def limit_reserved(nbytes: int) -> None:
    """Limit the memory that PyTorch's allocator may reserve to `nbytes`."""
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    torch.cuda.set_per_process_memory_fraction(min((nbytes + 0.5) / total, 1.0))


def measure_cuda_step(
    program: Program, num_steps: int, *, watched: Callable[[Callable[[Phase], None]], Any], history: bool = False
) -> CudaMeasurement:
    """Run `setup()` and the steps on the current GPU, in a process that has allocated nothing there yet.

    `watched(enter)` is a context in which `enter` is called with each phase that begins. Passes on any exception of the
    program, including `torch.OutOfMemoryError`.
    """
    nvml = _Nvml.of_first_device()
    torch.cuda.init()
    if history:
        record_history("all", context="alloc", stacks="all", max_entries=HISTORY_EVENTS, clear_history=True)
    meter = Meter()
    with watched(meter.enter):
        program.setup()
        for _ in range(num_steps):
            meter.begin_step()
            program.step()
            torch.cuda.synchronize()
    meter.enter(Phase.OTHER)
    assert meter.total is not None
    recorded = None
    if history:
        recorded = compact_history(snapshot(), torch.cuda.current_device())
        record_history(None)
    return CudaMeasurement(
        peaks=meter.total.model_copy(update={"device": nvml.nbytes() if nvml else None}),
        phases=meter.phases,
        steps=meter.steps,
        peak_phase=meter.peak_phase,
        num_retries=int(torch.cuda.memory_stats().get("num_alloc_retries", 0)),
        history=recorded,
    )


def driver_version() -> str:
    """Return the version of NVIDIA's driver; empty if pynvml is not installed."""
    pynvml = _pynvml()
    version: str | bytes = "" if pynvml is None else pynvml.nvmlSystemGetDriverVersion()
    return version.decode() if isinstance(version, bytes) else version


@dataclass
class _Nvml:
    """The GPU's memory as NVML sees it, for this process."""

    pynvml: Any
    handle: Any
    used_before: int

    @classmethod
    def of_first_device(cls) -> Self | None:
        """Return None if pynvml is not installed or knows no such GPU. Call it before the CUDA context exists."""
        pynvml = _pynvml()
        if pynvml is None:
            return None
        try:
            # NVML may number PyTorch's first GPU differently: CUDA_VISIBLE_DEVICES changes the numbers.
            handle = pynvml.nvmlDeviceGetHandleByIndex(nvml_index(0))
            return cls(pynvml, handle, int(pynvml.nvmlDeviceGetMemoryInfo(handle).used))
        except (pynvml.NVMLError, RuntimeError):
            return None

    def nbytes(self) -> int:
        """Return this process's bytes; in containers, where NVML does not know them, the growth of the GPU's use."""
        with suppress(self.pynvml.NVMLError):  # some containers do not permit it
            for process in self.pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle):
                if process.pid == os.getpid() and process.usedGpuMemory:
                    return int(process.usedGpuMemory)
        return int(self.pynvml.nvmlDeviceGetMemoryInfo(self.handle).used) - self.used_before


def _pynvml() -> Any:
    """Return the initialised module, or None."""
    if find_spec("pynvml") is None:
        return None
    pynvml = import_module("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml

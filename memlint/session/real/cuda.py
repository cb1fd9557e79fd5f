"""What a step on a GPU allocates, by PyTorch's own counters. Sizes are bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

import torch

from memlint.base.errors import UsageError
from memlint.memory.records import Phase
from memlint.validate.history import compact_history
from memlint.validate.measurement import Peaks

if TYPE_CHECKING:
    from memlint.tracing.recorder import Program  # it changes PyTorch, which a step on a real device must not see

_STATS = {
    "requested": "requested_bytes.all.peak",
    "allocated": "allocated_bytes.all.peak",
    "active": "active_bytes.all.peak",
    "reserved": "reserved_bytes.all.peak",
}
"""Keys of `torch.cuda.memory_stats`."""

HISTORY_EVENTS = 1_000_000
"""Most events of the allocator's history that are kept; a step has about ten thousand."""


@dataclass
class Meter:
    """Reads the peaks of the caching allocator phase by phase and step by step.

    `enter` is called at each change of phase: the peaks since the last one belong to the phase that ends. PyTorch
    counts when memory is asked for, on the thread that asks, so no synchronisation is needed.
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
        """Let `phase` begin."""
        stats = torch.cuda.memory_stats()
        peaks = Peaks.model_validate({name: stats.get(key, 0) for name, key in _STATS.items()})
        torch.cuda.reset_peak_memory_stats()
        if self.total is None or peaks.requested > self.total.requested:
            self.peak_phase = self.phase
        self.total = peaks.highest(self.total)
        num_allocations = stats.get("allocation.all.allocated", 0)
        if num_allocations > self.num_allocations:  # as in a Trace, what nothing was allocated in has no peak
            self.phases[self.phase] = peaks.highest(self.phases.get(self.phase))
        self.num_allocations = num_allocations
        if self.step >= 0:
            self.steps[self.step] = peaks.highest(self.steps[self.step])
        self.phase = phase

    def begin_step(self) -> None:
        """Let a step begin, with its forward."""
        self.enter(Phase.FORWARD)
        self.step += 1
        self.steps.append(Peaks(requested=0, allocated=0, active=0, reserved=0))


@dataclass(frozen=True)
class CudaMeasurement:
    """What the allocator's counters, NVML and, if asked for, the allocator's history say of a run."""

    peaks: Peaks
    phases: dict[Phase, Peaks]
    steps: list[Peaks]
    peak_phase: Phase
    num_retries: int
    history: dict[str, Any] | None


def require_cuda() -> None:
    """Raise UsageError where PyTorch sees no GPU."""
    if not torch.cuda.is_available():
        built = "this PyTorch is built without CUDA" if torch.version.cuda is None else "PyTorch sees no GPU"
        raise UsageError(f"--device cuda: {built}", "Run it on a machine with a GPU, or give --device cpu.")


def limit_reserved(nbytes: int) -> None:
    """Let PyTorch's allocator reserve at most `nbytes`.

    `set_per_process_memory_fraction` takes a share of the GPU's memory and rounds down to bytes; half a byte more
    keeps the product of the two floating-point numbers from falling below `nbytes`.
    """
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    torch.cuda.set_per_process_memory_fraction(min((nbytes + 0.5) / total, 1.0))


def measure_cuda_step(
    program: Program, num_steps: int, *, watched: Callable[[Callable[[Phase], None]], Any], history: bool = False
) -> CudaMeasurement:
    """Run `setup()` and the steps on the current GPU, in a process that has allocated nothing there.

    `watched(enter)` is a context in which `enter` is called with each phase that begins. Raises what the program
    raises, `torch.OutOfMemoryError` included.
    """
    nvml = _Nvml.of_first_device()
    torch.cuda.init()
    if history:
        torch.cuda.memory._record_memory_history(
            "all", context="alloc", stacks="all", max_entries=HISTORY_EVENTS, clear_history=True
        )
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
        recorded = compact_history(torch.cuda.memory._snapshot(), torch.cuda.current_device())
        torch.cuda.memory._record_memory_history(None)
    return CudaMeasurement(
        peaks=meter.total.model_copy(update={"device": nvml.nbytes() if nvml else None}),
        phases=meter.phases,
        steps=meter.steps,
        peak_phase=meter.peak_phase,
        num_retries=int(torch.cuda.memory_stats().get("num_alloc_retries", 0)),
        history=recorded,
    )


def driver_version() -> str:
    """Version of NVIDIA's driver; empty where pynvml is not installed."""
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
        """None where pynvml is not installed or knows no such GPU. To be called before the CUDA context is made."""
        pynvml = _pynvml()
        if pynvml is None:
            return None
        try:
            # PyTorch's first GPU may be another of NVML's: CUDA_VISIBLE_DEVICES changes the numbers.
            handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda._get_nvml_device_index(0))
            return cls(pynvml, handle, int(pynvml.nvmlDeviceGetMemoryInfo(handle).used))
        except (pynvml.NVMLError, RuntimeError):
            return None

    def nbytes(self) -> int:
        """Of this process; in containers, where NVML does not know it, the growth of what the whole GPU uses."""
        with suppress(self.pynvml.NVMLError):  # some containers do not permit it
            for process in self.pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle):
                if process.pid == os.getpid() and process.usedGpuMemory:
                    return int(process.usedGpuMemory)
        return int(self.pynvml.nvmlDeviceGetMemoryInfo(self.handle).used) - self.used_before


def _pynvml() -> Any:
    """The module, ready to be asked, or None."""
    if find_spec("pynvml") is None:
        return None
    pynvml = import_module("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml

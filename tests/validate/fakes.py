"""Fakes of `torch.cuda`'s memory interface and of NVML, as their documentation describes them.

The allocator behind the fake is memlint's own, which recorded histories hold to PyTorch's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from memlint.memory.allocator.reference import Allocator, Block

if TYPE_CHECKING:
    import pytest

GPU_NBYTES = 80 * 2**30


class FakeCuda:
    """Stands in for `torch.cuda`: counters since the last reset, a limit, a history."""

    def __init__(self) -> None:
        self.limit = GPU_NBYTES
        self.requested = self.allocated = self.reserved = 0
        self.peaks = {"requested": 0, "allocated": 0, "active": 0, "reserved": 0}
        self.num_allocations = 0
        self.allocator = Allocator()
        self.recording: dict[str, Any] | None = None
        self.entries: list[dict[str, Any]] = []
        self.frames: list[dict[str, Any]] = []
        """What the next events' stacks are."""

    # --- what a program does

    def malloc(self, nbytes: int) -> Block:
        reserved = self.allocator.reserved
        block = self.allocator.malloc(nbytes)
        if self.allocator.reserved > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        if self.allocator.reserved > reserved:
            self._note("segment_alloc", block.segment, self.allocator.reserved - reserved)
        self._note("alloc", block.address, nbytes)
        self.requested += nbytes
        self.num_allocations += 1
        self._count()
        return block

    def free(self, block: Block, nbytes: int) -> None:
        for action in ("free_requested", "free_completed"):
            self._note(action, block.address, nbytes)
        self.allocator.free(block)
        self.requested -= nbytes

    def _count(self) -> None:
        now = {
            "requested": self.requested,
            "allocated": self.allocator.allocated,
            "active": self.allocator.allocated,
            "reserved": self.allocator.reserved,
        }
        self.peaks = {name: max(self.peaks[name], now[name]) for name in now}

    def _note(self, action: str, address: int, nbytes: int) -> None:
        if self.recording is not None:
            entry = {"action": action, "addr": address, "size": nbytes, "stream": 0, "time_us": 0}
            self.entries.append(entry | {"frames": list(self.frames)})

    # --- what torch.cuda offers

    def memory_stats(self) -> dict[str, int]:
        stats = {f"{name}_bytes.all.peak": nbytes for name, nbytes in self.peaks.items()}
        return stats | {"allocation.all.allocated": self.num_allocations, "num_alloc_retries": 3}

    def reset_peak_memory_stats(self) -> None:
        self.peaks = dict.fromkeys(self.peaks, 0)
        self._count()

    def set_per_process_memory_fraction(self, fraction: float) -> None:
        assert 0 <= fraction <= 1
        self.limit = int(fraction * GPU_NBYTES)

    def get_device_properties(self, _device: int) -> Any:
        return SimpleNamespace(name="NVIDIA A100-SXM4-80GB", total_memory=GPU_NBYTES, major=8, minor=0)

    def record_memory_history(self, enabled: str | None = "all", **options: Any) -> None:
        self.recording = None if enabled is None else options

    def snapshot(self) -> dict[str, Any]:
        blocks = [{"size": 2**21, "requested_size": 512, "state": "active_allocated", "address": 0, "frames": []}]
        segment = {
            "address": 0,
            "total_size": 2**21,
            "stream": 0,
            "segment_type": "small",
            "device": 0,
            "blocks": blocks,
        }
        return {
            "device_traces": [self.entries],
            "segments": [segment],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
        }

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in (
            "memory_stats", "reset_peak_memory_stats", "set_per_process_memory_fraction", "get_device_properties",
        ):  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "init", lambda: None)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)  # optimizers ask CUDA builds
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.backends.cudnn, "version", lambda: None)  # CUDA builds ask the GPU for it
        check = "_accelerator_graph_capture_health_check"  # the same, since PyTorch 2.13
        monkeypatch.setattr(torch.optim.Optimizer, check, lambda _self: None, raising=False)
        monkeypatch.setattr(torch.cuda, "_get_nvml_device_index", lambda _device: 0)
        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", self.record_memory_history)
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", self.snapshot)


@dataclass
class FakeNvml:
    """Stands in for the module `pynvml`."""

    used: int = 1000
    processes: list[Any] = field(default_factory=list)
    permitted: bool = True

    def module(self) -> ModuleType:
        module = ModuleType("pynvml")
        module.__spec__ = SimpleNamespace()  # type: ignore[assignment]

        class NVMLError(Exception):
            pass

        def running(_handle: object) -> list[Any]:
            if not self.permitted:
                raise NVMLError("Insufficient Permissions")
            return self.processes

        module.__dict__.update(
            NVMLError=NVMLError,
            nvmlInit=lambda: None,
            nvmlSystemGetDriverVersion=lambda: b"595.10",
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetMemoryInfo=lambda _handle: SimpleNamespace(used=self.used),
            nvmlDeviceGetComputeRunningProcesses=running,
        )
        return module


class FakeProgram:
    """A training step whose allocations are the fake's: sizes in bytes, the backward a real one on the host."""

    def __init__(self, cuda: FakeCuda, activation: int = 30 * 2**20, state: int = 12 * 2**20) -> None:
        self.cuda = cuda
        self.activation = activation
        self.state = state
        self.model: torch.nn.Module | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.inputs: dict[str, torch.Tensor] = {}

    def setup(self) -> None:
        self.model = torch.nn.Linear(4, 4)
        self.inputs = {"x": torch.ones(2, 4)}
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.cuda.malloc(1000)
        cuda, state = self.cuda, self.state

        class Allocates(torch.autograd.Function):
            @staticmethod
            def forward(_context: Any, x: torch.Tensor) -> torch.Tensor:
                return x.clone()

            @staticmethod
            def backward(_context: Any, gradient: torch.Tensor) -> torch.Tensor:
                cuda.free(cuda.malloc(state), state)
                return gradient

        self.function = Allocates

    def step(self) -> None:
        assert self.model is not None
        assert self.optimizer is not None
        block = self.cuda.malloc(self.activation)
        loss = self.function.apply(self.model(self.inputs["x"])).sum()
        loss.backward()
        self.cuda.free(block, self.activation)
        self.optimizer.step()
        self.optimizer.zero_grad()

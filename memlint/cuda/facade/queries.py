"""`torch.cuda.*`: questions about the simulated GPU, answered from the catalogue and the simulation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.backends.cudnn.rnn as cudnn_rnn  # as `from cudnn import rnn`, torch 2.10 gives a setting of that name

from memlint.cuda.allocator.reference import Allocator, Block, OutOfMemory
from memlint.cuda.simulated import Simulated


class _InOrder:
    """Something that waits for nothing: everything runs in order here."""

    def query(self) -> bool:
        """Nothing is ever pending."""
        return True

    def synchronize(self, *_: Any) -> None:
        """Nothing is waited for."""


class Stream(_InOrder):
    """A CUDA stream."""

    def __init__(self, _device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.priority = priority
        self.cuda_stream = self.stream_id = 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        """An event that has happened."""
        return event or Event()

    wait_event = wait_stream = _InOrder.synchronize


class Event(_InOrder):
    """A CUDA event; it has always happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def elapsed_time(self, _: Event) -> float:
        """Milliseconds between two events, unknowable here; one, so that rates can be computed."""
        return 1.0

    record = wait = _InOrder.synchronize


class Statistics:
    """What `torch.cuda.memory_*` would say: the ledger's events so far, replayed through the allocator.

    A share of the GPU that is too small for the program does not stop it, as the Report says what it would take.
    """

    def __init__(self, simulation: Simulated) -> None:
        self._ledger, self._settings = simulation.ledger, simulation.allocator
        fraction = self._settings.memory_fraction
        self._begin(share=None if fraction >= 1 else int(fraction * simulation.device.total_nbytes))

    def _begin(self, share: int | None) -> None:
        self._allocator = Allocator(self._settings, share=share)
        self._blocks: dict[int, Block] = {}
        self._position = 0

    def now(self) -> Allocator:
        """The allocator after all that has happened."""
        try:
            self._advance()
        except OutOfMemory:
            self._begin(share=None)
            self._advance()
        return self._allocator

    def _advance(self) -> None:
        events, births = self._ledger.events, self._ledger.births
        for event in events[self._position :]:
            if event < 0:
                block = self._blocks.pop(~event, None)
                if block is not None:
                    self._allocator.free(block)
            elif births[event].nbytes:  # as in PyTorch, no bytes take no block
                self._blocks[event] = self._allocator.malloc(births[event].nbytes)
        self._position = len(events)

    def reset_peak(self, *_: Any) -> None:
        """`torch.cuda.reset_peak_memory_stats`."""
        allocator = self.now()
        allocator.peak_allocated, allocator.peak_reserved = allocator.allocated, allocator.reserved

    def as_dict(self, *_: Any) -> dict[str, int]:
        """`torch.cuda.memory_stats`, the entries that programs read."""
        allocator = self.now()
        current = {"current": allocator.allocated, "peak": allocator.peak_allocated}
        return {
            **{f"{kind}_bytes.all.{when}": n for kind in ("allocated", "active") for when, n in current.items()},
            "requested_bytes.all.current": allocator.requested,
            "reserved_bytes.all.current": allocator.reserved,
            "reserved_bytes.all.peak": allocator.peak_reserved,
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }


def _answer(value: Any = None) -> Callable[..., Any]:
    return lambda *_, **__: value  # a new function each: TorchDynamo wants replaced functions to be distinct


_NAMES = """
    init _lazy_init _lazy_call synchronize set_device manual_seed manual_seed_all seed seed_all set_rng_state
    set_rng_state_all ipc_collect set_per_process_memory_fraction set_stream
"""
_SILENT = _NAMES.split()
"""Functions of `torch.cuda` that do nothing here."""


def patches(simulation: Simulated) -> list[tuple[Any, str, Any]]:
    """Everything replaced in `torch.cuda` while a GPU is simulated: owner, name, replacement."""
    statistics, device = Statistics(simulation), simulation.device
    properties = SimpleNamespace(
        name=device.title,
        major=device.capability[0],
        minor=device.capability[1],
        total_memory=device.total_nbytes,
        multi_processor_count=device.num_sms,
        max_threads_per_multi_processor=device.threads_per_sm,
        warp_size=32,
        is_integrated=False,
        is_multi_gpu_board=False,
        L2_cache_size=40 << 20,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        gcnArchName="",
    )
    random_state = torch.zeros(16, dtype=torch.uint8)
    stream = Stream()

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        """Say yes on older GPUs as well, which emulate it, unless that is not to count."""
        return including_emulation or device.capability >= (8, 0)

    answers: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            "is_available": True,
            "is_initialized": True,
            "device_count": 1,
            "current_device": 0,
            "get_device_name": device.title,
            "get_device_capability": device.capability,
            "get_device_properties": properties,
            "get_arch_list": [f"sm_{device.capability[0]}{device.capability[1]}"],
            "is_current_stream_capturing": False,
            "current_stream": stream,
            "default_stream": stream,
            "current_blas_handle": 0,
            "initial_seed": 0,
            "get_rng_state": random_state,
            "get_rng_state_all": [random_state],
            "memory_summary": "",
            "memory_snapshot": [],
            "utilization": 0,
            "can_device_access_peer": False,
            **dict.fromkeys(_SILENT),
        },
        torch: {"_use_cudnn_rnn_flatten_weight": True},
        torch.cuda.nvtx: {"range_push": 0, "range_pop": 0, "mark": None},
        torch.cuda.amp.common: {"amp_definitely_not_available": False},
        torch.backends.cuda: {"is_built": True},
        torch.backends.cudnn: {"is_available": True},
        torch.accelerator: {
            "is_available": True,
            "current_accelerator": torch.device("cuda"),
            "device_count": 1,
            "current_device_index": 0,
            "synchronize": None,
        },
        torch._C: {"_cuda_getCurrentRawStream": 0},
    }
    functions: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            "_initialized": True,
            "is_bf16_supported": is_bf16_supported,
            "Stream": Stream,
            "Event": Event,
            **{name: lambda *_, **__: contextlib.nullcontext() for name in ("stream", "device", "device_of")},
            "memory_allocated": lambda *_: statistics.now().allocated,
            "memory_reserved": lambda *_: statistics.now().reserved,
            "max_memory_allocated": lambda *_: statistics.now().peak_allocated,
            "max_memory_reserved": lambda *_: statistics.now().peak_reserved,
            "reset_peak_memory_stats": statistics.reset_peak,
            "reset_max_memory_allocated": statistics.reset_peak,
            "memory_stats": statistics.as_dict,
            "empty_cache": lambda: statistics.now().empty_cache(),
            "mem_get_info": lambda *_: (device.total_nbytes - statistics.now().reserved, device.total_nbytes),
            **{name: _legacy(name, dtype) for name, dtype in _TENSOR_TYPES.items()},
        },
        torch.cuda.nvtx: {"range": lambda *_, **__: contextlib.nullcontext()},
        torch.backends.cudnn: {"is_acceptable": lambda t: t.is_cuda},
        torch._C: {"_scatter": lambda tensor, *_: (tensor.cuda(),)},  # DataParallel, on one GPU
        cudnn_rnn: {"get_cudnn_mode": {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}.__getitem__},
    }
    replaced = [(owner, name, _answer(value)) for owner, each in answers.items() for name, value in each.items()]
    return replaced + [(owner, name, value) for owner, each in functions.items() for name, value in each.items()]


_NUMBERS = "Float Double Half BFloat16 Long Int Bool"
_TENSOR_TYPES = {f"{name}Tensor": getattr(torch, name.lower()) for name in _NUMBERS.split()}
_TENSOR_TYPES["ByteTensor"] = torch.uint8


def _legacy(name: str, dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    def make(*args: Any) -> torch.Tensor:
        if args and all(isinstance(a, int) for a in args):
            return torch.empty(*args, dtype=dtype, device="cuda")
        return torch.tensor(args[0] if args else [], dtype=dtype, device="cuda")

    make.__name__, make.__module__ = name, "torch.cuda"  # how `Tensor.type` says it
    return make

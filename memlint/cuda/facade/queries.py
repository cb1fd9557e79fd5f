"""`torch.cuda.*`: queries about the simulated GPU, answered from the catalogue and the simulation."""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.backends.cudnn.rnn as cudnn_rnn  # `from cudnn import rnn` gives a setting of that name in torch 2.10
import torch.distributed as dist

from memlint.accelerator.private import (
    CUDA_INITIALIZED,
    CUDART,
    NVTX,
    USES_CUDNN_FOR_WEIGHTS,
    accelerator_functions,
    compiled,
    cuda_functions,
)
from memlint.cuda.facade import data_parallel, graphs, memory, streams
from memlint.cuda.simulated import Simulated
from memlint.cuda.versions import cudnn_versions
from memlint.memory.devices import Device

_NCCL_VERSION = (2, 29, 7)
"""NCCL of the wheels of torch 2.13: RELEASE.md of pytorch/pytorch, by its pull request 190386."""
_OF_NCCL = (dist, dist.distributed_c10d) if dist.is_available() else ()
"""Modules that say if NCCL is there, which comes with PyTorch for CUDA."""


class DeviceContext:
    """Stand-in for `torch.cuda.device`: it changes nothing, as there is one device."""

    def __init__(self, _device: Any = None) -> None:
        self.idx = self.prev_idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _nothing_different() -> Callable[..., Any]:
    @contextlib.contextmanager
    def context(*_: Any, **__: Any) -> Iterator[None]:
        yield

    return context  # a new function each, whose `__wrapped__` TorchDynamo needs


def _answer(value: Any = None) -> Callable[..., Any]:
    return lambda *_, **__: value  # a new function each: TorchDynamo requires distinct functions


CUDA_VERSION = torch.version.cuda or "13.0"
"""CUDA of the installed PyTorch, or of the wheels of torch 2.13: RELEASE.md of pytorch/pytorch, by its pull request
190386."""
_NAMES = """
    init _lazy_init _lazy_call set_device manual_seed manual_seed_all seed seed_all set_rng_state
    set_rng_state_all ipc_collect _sleep
"""
_SILENT = _NAMES.split()
"""Functions of `torch.cuda` that do nothing here."""
_SHARED_MEMORY = {
    (7, 0): (96, 96), (7, 5): (64, 64), (8, 0): (164, 163), (8, 6): (100, 99), (8, 7): (164, 163), (8, 9): (100, 99),
    (9, 0): (228, 227), (10, 0): (228, 227), (10, 3): (228, 227), (12, 0): (100, 99),
}  # fmt: skip
"""Shared memory in KiB of a multiprocessor and of a block that opts in to more, by capability: CUDA C++ Programming
Guide, technical specifications."""
_L2_CACHE = {
    "t4": 4, "v100-16gb": 6, "v100-32gb": 6, "a10g": 6, "a100-40gb": 40, "a100-80gb": 40, "a30": 24, "a40": 6, "l4": 48,
    "l20": 96, "l40s": 96, "h20": 60, "h100-80gb": 50, "h200": 60, "gh200": 60, "b200": 126, "gb200": 126, "rtx3090": 6,
    "rtx-a6000": 6, "rtx4060": 24, "rtx4060-ti-8gb": 32, "rtx4070": 36, "rtx4070-ti": 48, "rtx4070-ti-super": 48,
    "rtx4080": 64, "rtx4080-super": 64, "rtx4090": 72, "rtx5060-ti-16gb": 32, "rtx5080": 64, "rtx5090": 96,
    "rtx-pro-6000": 128,
}  # fmt: skip
"""L2 cache in MiB of the GPUs in the catalogue. PyTorch prints them with the properties of an A100, H100, H200, B200,
RTX 4090, 5080 and PRO 6000 (Server Edition), deviceQuery of a T4; those of other GPUs are in NVIDIA's whitepapers of
Volta, Ampere (GA100, GA102), Ada and GeForce Blackwell. Where no figure was found, it is that of a GPU with the same
chip and memory interface: of the RTX 6000 Ada for L20 and L40S, of the RTX 4070 Ti for the L4, of the H200 for H20 and
GH200, of the B200 for the GB200."""


class Properties(SimpleNamespace):
    """Answer of `torch.cuda.get_device_properties`."""


class _Silent:
    """Stand-in for a C library whose functions do nothing and report success."""

    cudaError = SimpleNamespace(success=0)  # noqa: N815 -- its name

    def __init__(self, **functions: Callable[..., Any]) -> None:
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 0


def l2_cache(device: Device) -> int:
    """Return the bytes of a GPU's L2 cache; 0 if they are not known."""
    return _L2_CACHE.get(device.name, 0) << 20


def patches(simulation: Simulated) -> list[tuple[Any, str, Any]]:
    """Return the patches of `torch.cuda` while a GPU is simulated: owner, name, replacement."""
    statistics, device = memory.Statistics(simulation), simulation.device
    of_multiprocessor, of_block = _SHARED_MEMORY.get(device.capability, (100, 99))
    cudart = _Silent(cudaMemGetInfo=lambda *_: (statistics.free, device.total_nbytes))
    properties = Properties(
        name=device.title,
        major=device.capability[0],
        minor=device.capability[1],
        total_memory=device.total_nbytes,
        multi_processor_count=device.num_sms,
        max_threads_per_multi_processor=device.threads_per_sm,
        warp_size=32,
        is_integrated=False,
        is_multi_gpu_board=False,
        L2_cache_size=l2_cache(device),
        regs_per_multiprocessor=65536,
        max_threads_per_block=1024,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=of_block << 10,
        shared_memory_per_multiprocessor=of_multiprocessor << 10,
        uuid="00000000-0000-0000-0000-000000000000",
        **dict.fromkeys(("pci_bus_id", "pci_device_id", "pci_domain_id"), 0),
        gcnArchName="",
    )
    random_state = torch.zeros(16, dtype=torch.uint8)

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        """Return True on older GPUs as well, which emulate bf16, unless `including_emulation` is false."""
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
            "current_blas_handle": 0,
            "initial_seed": 0,
            "get_rng_state": random_state,
            "get_rng_state_all": [random_state],
            **dict.fromkeys(("utilization", "memory_usage", "temperature", "power_draw", "clock_rate"), 0),
            "can_device_access_peer": False,
            "cudart": cudart,
            "is_tf32_supported": device.capability >= (8, 0),
            "get_sync_debug_mode": 0,
            "set_sync_debug_mode": None,
            "list_gpu_processes": "no processes are running",
            **dict.fromkeys(_SILENT),
        },
        torch: {USES_CUDNN_FOR_WEIGHTS: True},
        torch.autograd.profiler: {"emit_nvtx": contextlib.nullcontext()},
        torch.cuda.amp.common: {"amp_definitely_not_available": False},
        torch.backends.cuda: {
            "is_flash_attention_available": True,
            "is_built": True,
            **dict.fromkeys(("preferred_linalg_library", "preferred_blas_library")),
        },
        torch.backends.cudnn: {"is_available": True},
        torch.cuda.nccl: {"version": _NCCL_VERSION},
        **{owner: {"is_nccl_available": True} for owner in _OF_NCCL},
        torch.accelerator: {
            "is_available": True,
            "current_accelerator": torch.device("cuda"),
            "device_count": 1,
            "current_device_index": 0,
            **dict.fromkeys(("set_device_index", "set_device_idx")),
        },
        compiled: {
            **accelerator_functions({"isAllocatorInitialized": True}),
            **cuda_functions(
                {
                    "getDeviceCount": 1,
                    "isInBadFork": False,
                    **dict.fromkeys(("getDevice", "exchangeDevice", "maybeExchangeDevice"), 0),
                    "getCurrentBlasHandle": 0,
                    **dict.fromkeys(("setDevice", "setStream", "init")),
                    "hostMemoryStats": {},
                    **dict.fromkeys(("resetPeakHostMemoryStats", "resetAccumulatedHostMemoryStats")),
                }
            ),
        },
    }
    functions: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            CUDA_INITIALIZED: True,
            "is_bf16_supported": is_bf16_supported,
            "MemPool": _Silent,
            CUDART: cudart,
            "device": DeviceContext,
            "device_of": type("device_of", (DeviceContext,), {}),
            "device_memory_used": lambda *_, **__: device.total_nbytes - statistics.free,
            "use_mem_pool": _nothing_different(),
            **{name: _legacy(name, dtype) for name, dtype in _TENSOR_TYPES.items()},
        },
        torch: {"set_default_tensor_type": _set_default_tensor_type},
        torch.version: {"cuda": CUDA_VERSION},
        torch.cuda.nvtx: {NVTX: _Silent()},
        torch.backends.cudnn: {"is_acceptable": _is_acceptable, "version": lambda: cudnn_versions()[0]},
        compiled: {
            **statistics.patches(),
            **cuda_functions({"clearCublasWorkspaces": simulation.workspaces.clear}),
        },
        cudnn_rnn: {"get_cudnn_mode": {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}.__getitem__},
    }
    replaced = [(owner, name, _answer(value)) for owner, each in answers.items() for name, value in each.items()]
    replaced += [*streams.patches(), *graphs.patches(), *data_parallel.patches()]
    return replaced + [(owner, name, value) for owner, each in functions.items() for name, value in each.items()]


def _is_acceptable(tensor: torch.Tensor) -> bool:
    """Return True if cuDNN is asked to flatten the weights of a recurrent layer: bfloat16 is not, although it runs."""
    return tensor.is_cuda and torch.backends.cudnn.enabled and tensor.dtype in torch.backends.cudnn.CUDNN_TENSOR_DTYPES


_NUMBERS = "Float Double Half BFloat16 Long Int Bool"
_TENSOR_TYPES = {f"{name}Tensor": getattr(torch, name.lower()) for name in _NUMBERS.split()}
_TENSOR_TYPES["ByteTensor"] = torch.uint8


has_default_type_of_gpu = False
"""True if `torch.Tensor(3, 4)`, which no default device concerns, is on the GPU."""


def _set_default_tensor_type(kind: Any) -> None:
    """Stand in for `torch.set_default_tensor_type`: a tensor type of the GPU also sets the default device."""
    global has_default_type_of_gpu  # noqa: PLW0603 -- of the process, as the device is
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    has_default_type_of_gpu = name.startswith("torch.cuda.")
    torch.set_default_device("cuda" if has_default_type_of_gpu else None)
    torch.set_default_dtype(_TENSOR_TYPES[name.rpartition(".")[2]])


def _legacy(name: str, dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    def make(*args: Any) -> torch.Tensor:
        if args and all(isinstance(a, int) for a in args):
            return torch.empty(*args, dtype=dtype, device="cuda")
        return torch.tensor(args[0] if args else [], dtype=dtype, device="cuda")

    make.__name__, make.__module__ = name, "torch.cuda"  # in the notation of `Tensor.type`
    return make

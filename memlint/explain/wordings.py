"""The wordings of messages about memory, as data: how each is found in a log, and where its numbers stand.

Sources: `c10/cuda/CUDACachingAllocator.cpp` (PyTorch 1.0 to 2.13; until 1.4 it said "cached" for what is reserved and
not allocated), `c10/cuda/CUDAMallocAsyncAllocator.cpp`, `c10/xpu/XPUCachingAllocator.cpp`,
`aten/src/ATen/mps/MPSAllocator.mm` (whose units are powers of 1024, also where they are called GB),
`torch/utils/data/_utils/signal_handling.py`, `torch/distributed/elastic`, `triton/runtime/errors.py`,
`mm/oom_kill.c` of Linux, and messages in public issues (`fixtures/messages/`).
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Wording: TypeAlias = Literal[
    "allocator",
    "runtime",
    "cublas",
    "cudnn",
    "nccl",
    "triton",
    "loader",
    "host_allocator",
    "kernel_killer",
    "killed",
    "cache_blocks",
]
"""Writers of messages: PyTorch's allocator, the runtime of CUDA or HIP, cuBLAS, cuDNN, NCCL, Triton, the parent of a
DataLoader's workers, the allocator of host memory, the kernel's or a cluster's OOM killer, whoever saw a process that
was killed, a serving engine without room for its cache.
"""
Failure: TypeAlias = Literal["device", "kernel_shared", "shared", "host"]
"""The memory that was short: the GPU's, a kernel's on-chip shared memory, /dev/shm, or the host's."""

AMOUNT = r"(?<!\d\.\s)(?<![\d.])\d+(?:\.\d*)?\s?(?:bytes|[KMGT]?i?B)\b"
_AMOUNT = f"({AMOUNT})"


@dataclass(frozen=True, slots=True)
class Form:
    """One wording: the pattern that finds it, and the memory that was short."""

    wording: Wording
    failure: Failure
    pattern: re.Pattern[str]
    numbers: tuple[tuple[str, re.Pattern[str]], ...] = ()
    """Names of the amounts that the text from the pattern on can hold, and where each stands."""
    is_sure: bool = True
    """False if the same words have other causes too."""


def _compiled(**patterns: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in patterns.items())


_OF_ALLOCATOR = _compiled(
    requested=rf"(?:Tried to allocate|Requested\s*:)\s*{_AMOUNT}",
    capacity=rf"(?:total capaci?ty of|Device limit\s*:)\s*{_AMOUNT}|{_AMOUNT}\s*total capacity",
    free=rf"{_AMOUNT}\s*(?:is\s+)?free\b(?! \()|Free \(according to CUDA\)\s*:\s*{_AMOUNT}",
    allocated=rf"{_AMOUNT}\s*(?:already allocated|is allocated by PyTorch)"
    rf"|(?:MPS allocated|Currently allocated\s*):\s*{_AMOUNT}",
    private_pools=rf"with\s*{_AMOUNT}\s*allocated in private pools",
    unallocated=rf"{_AMOUNT}\s*(?:is reserved by PyTorch but unallocated|cached\b)",
    reserved=rf"{_AMOUNT}\s*reserved in total",
    allowed=rf"{_AMOUNT}\s*allowed;|max allowed:\s*{_AMOUNT}|memory fraction\)\s*:\s*{_AMOUNT}"
    rf"|size larger than\s*{_AMOUNT}!",
    in_use=rf"this process has\s*{_AMOUNT}\s*memory in use",
    elsewhere=rf"other allocations:\s*{_AMOUNT}",
)
PROCESS = re.compile(rf"Process (\d+) has\s*{_AMOUNT}\s*memory in use", re.IGNORECASE)
DEVICE = re.compile(r"\bGPU\s+(\d+)\b(?:\s+has a total|;)|Allocation on device (\d+)")
BACKEND = re.compile(r"\b(CUDA|HIP|XPU|MPS)(?: backend)? out of memory|\bMPS allocated|block with size larger than")


def _form(wording: Wording, failure: Failure, pattern: str, *, is_sure: bool = True, **numbers: str) -> Form:
    flags = re.IGNORECASE | re.MULTILINE
    return Form(wording, failure, re.compile(pattern, flags), _compiled(**numbers), is_sure)


FORMS = (
    Form(
        "allocator",
        "device",
        re.compile(
            r"(?:(?:(?:CUDA|HIP|XPU|MPS backend) out of memory|NOT allocate memory block)[^\n]{0,140}?\s*)?"
            r"Tried to allocate\s+(?:more than|[\d.]+ \w+\s\(GPU\s|\d)"
            r"|(?:CUDA|HIP|XPU) out of memory\b"
            r"|Allocation on device \d+ would exceed allowed memory|\(GPU\s+\d+; [\d.]+ \w+ total capacity"
        ),
        _OF_ALLOCATOR,
    ),
    _form(
        "allocator",
        "device",
        r"NVML_SUCCESS == .{0,90}INTERNAL ASSERT FAILED at .{0,160}CUDACachingAllocator",
        is_sure=False,
    ),
    _form("nccl", "device", r"Failed to CUDA (?:m|c)alloc\w* \d+ bytes", requested=r"alloc\w* (\d+ bytes)"),
    _form("nccl", "device", r"Cuda failure(?: \d+)? 'out of memory'"),
    _form("cublas", "device", r"(?:CUBLAS|HIPBLAS|ROCBLAS)_STATUS_ALLOC_FAILED"),
    _form("cublas", "device", r"CUBLAS_STATUS_NOT_INITIALIZED", is_sure=False),
    _form("cudnn", "device", r"CUDNN_STATUS_ALLOC_FAILED"),
    _form("cudnn", "device", r"CUDNN_STATUS_NOT_INITIALIZED|Unable to find a valid cuDNN algorithm", is_sure=False),
    _form(
        "runtime",
        "device",
        r"(?:CUDA|HIP) error: out of memory|(?:cuda|hip) runtime error \(2\) ?: out of memory"
        r"|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|error=2 : out of memory|cudaErrorMemoryAllocation",
    ),
    _form(
        "triton",
        "kernel_shared",
        r"out of resource: shared memory",
        requested=r"Required: ?(\d+)",
        allowed=r"Hardware limit(?:ation)?: ?(\d+)",
    ),
    _form(
        "loader",
        "shared",
        r"Unexpected bus error encountered in worker|DataLoader worker \(pid[^)]*\)+ is killed by signal: Bus error"
        r"|unable to (?:allocate shared memory|write to file </torch_|open shared memory)",
    ),
    _form("loader", "shared", r"unable to mmap \d+ bytes from file", is_sure=False),
    _form("loader", "host", r"DataLoader worker \(pid[^)]*\)+ is killed by signal: Killed", is_sure=False),
    _form(
        "host_allocator",
        "host",
        r"DefaultCPUAllocator: |posix_memalign\(&data, gAlignment, nbytes\) == 0\. 12"
        r"|Unable to allocate [\d.]+ ?\w+ for an array|^MemoryError\b|\[Errno 12\] Cannot allocate memory",
        requested=rf"tried to allocate ({AMOUNT})|Unable to allocate ({AMOUNT})",
    ),
    _form(
        "kernel_killer",
        "host",
        r"(?:Memory cgroup )?out of memory: Kill(?:ed)? process \d+|oom[-_]kill event|\bOOMKilled\b"
        r"|cgroup out-of-memory handler",
        allocated=r"anon-rss:(\d+ ?kB)",
    ),
    _form(
        "killed",
        "host",
        r"exitcode\s*:\s*-9\b|exit(?:ed)?(?: with)?(?: status)?(?: code)?[ :=]+(?:137|-9)\b|Signal 9 \(SIGKILL\)"
        r"|^\s*Killed\s*$"
        r"|: line \d+:\s+\d+ Killed\b|died with <Signals\.SIGKILL",
        is_sure=False,
    ),
    _form("allocator", "device", r"(?<!except )(?<!\.)\b(?:torch\.)?(?:cuda\.)?OutOfMemoryError: "),
    _form("cache_blocks", "device", r"No available memory for the cache blocks"),
)
"""Every wording; where two find the same place, the first in this list counts."""

KEYS = (
    *(
        "out of memory",
        "Out of memory",
        "out-of-memory",
        "OUT_OF_MEMORY",
        "OutOfMemory",
        "MemoryAllocation",
        "MemoryError",
    ),
    *(
        "shared memory",
        "CPUAllocator",
        "allocate",
        "Allocation on",
        "Failed to CUDA",
        "total capacity",
        "posix_memalign",
    ),
    *("_STATUS_", "cuDNN algorithm", "NVML_SUCCESS", "of resource", "bus error", "Bus error", "to write to file"),
    *("is killed by", "oom-kill", "oom_kill", "OOMKilled", "exit", "SIGKILL", "Killed", "cache blocks"),
)
"""Words of which each place that a pattern finds has one: a long log is searched for these first."""

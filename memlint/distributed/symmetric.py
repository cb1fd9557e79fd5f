"""Symmetric memory (`torch.distributed._symmetric_memory`): blocks of a GPU that other GPUs read and write.

Its allocator takes them directly from the driver, so they are part of `device` and never of `reserved`: the bytes asked
for and a signal pad of 9,216 bytes, in whole pages of 2 MiB, as torch/csrc/distributed/c10d/symm_mem/
CUDASymmetricMemory.cu has them (`alloc`). Mapped memory of other ranks takes nothing of its own GPU.
"""

import functools
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Self

import torch

from memlint.accelerator.device import allocate_apart
from memlint.accelerator.private.distributed import default_group, group_named
from memlint.accelerator.private.sharding import STORES, SYMMETRIC_MEMORY, USES_POOL, WORKSPACES, symmetric_memory
from memlint.accelerator.registration import KEY, implemented
from memlint.base.errors import TraceError
from memlint.base.patching import Patch
from memlint.cuda.simulated import Simulated, simulated
from memlint.memory.communicators import SYMMETRIC
from memlint.memory.records import Collective

_PAGE = 2 << 20
"""Page size in bytes that `cuMemGetAllocationGranularity` recommends."""

_FUSED = (
    *("fused_all_gather_matmul", "fused_all_gather_scaled_matmul", "fused_matmul_reduce_scatter"),
    *("fused_scaled_matmul_reduce_scatter", "_low_contention_all_gather", "_low_contention_reduce_scatter"),
    "get_remote_tensors",
)


def _refuse(what: str, *_: Any, **__: Any) -> NoReturn:
    raise TraceError(
        f"symmetric memory: {what} is not simulated",
        "Use symm_mem.empty(), rendezvous(), get_buffer() and barrier() of the CUDA backend, which are modelled.",
    )


class SymmetricMemory:
    """PyTorch's C++ class of symmetric memory: its functions, and a tensor that a group has agreed upon."""

    signal_pad_size = 9216

    def __init__(self, tensor: torch.Tensor, group_name: str) -> None:
        """`tensor` is this rank's."""
        self._tensor = tensor
        group = group_named(group_name)
        self.rank, self.world_size = group.rank(), group.size()
        self.device, self.buffer_size, self.multicast_ptr = tensor.device, tensor.nbytes, 0

    @classmethod
    def empty_strided_p2p(
        cls,
        size: Sequence[int],
        stride: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        group_name: str | None = None,
        alloc_id: int | None = None,
    ) -> torch.Tensor:
        """Allocate a tensor outside the caching allocator."""
        if alloc_id is not None or torch.device(device).type == "cpu":
            _refuse("an allocation that persists, or of another device than a GPU")
        now = simulated()
        tensor = allocate_apart(size, stride, dtype)
        storage: Any = tensor.untyped_storage()
        nbytes = -(-(tensor.nbytes + cls.signal_pad_size) // _PAGE) * _PAGE
        now.symmetric += nbytes
        storage.memlint_symmetric = block = _Block()
        weakref.finalize(block, _free, now, nbytes)
        now.collectives.append(
            Collective(
                node=now.ledger.node, kind="empty", group=group_name or "", size=1, within_node=True,
                nbytes_in=0, nbytes_out=now.symmetric, stream=now.ledger.stream, backend=SYMMETRIC,
                neighbours=(0, 0), shares=False,
            )
        )  # fmt: skip
        return tensor

    @classmethod
    def rendezvous(cls, tensor: torch.Tensor, group_name: str | None = None) -> Self | None:
        """Return the ranks' view of such a tensor; None for any other tensor."""
        name = group_name or default_group().group_name
        return cls(tensor, name) if cls.is_symm_mem_tensor(tensor) else None

    @staticmethod
    def is_symm_mem_tensor(tensor: torch.Tensor) -> bool:
        """Return True if `empty` of this module allocated its storage."""
        return hasattr(tensor.untyped_storage(), "memlint_symmetric")

    def get_buffer(
        self,
        rank: int,  # noqa: ARG002
        sizes: Sequence[int],
        dtype: torch.dtype,
        storage_offset: int = 0,
    ) -> torch.Tensor:
        """Return the memory of a rank; all ranks are assumed to be like this one."""
        view = torch.empty(0, dtype=dtype, device="cuda")
        storage = self._tensor.untyped_storage()
        return view.set_(storage, storage_offset, tuple(sizes))  # type: ignore[call-overload, no-any-return]

    def get_remote_tensor(self, peer: int, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return the whole memory of a rank."""
        return self.get_buffer(peer, sizes, dtype)

    def barrier(self, *_: Any, **__: Any) -> None:
        """Do nothing: no other rank runs."""

    put_signal = wait_signal = barrier

    @staticmethod
    def has_multicast_support(*_: Any) -> bool:
        """Return False: multicast is not modelled."""
        return False

    @staticmethod
    def get_backend(_device: Any) -> str:
        """Return the only backend."""
        return "CUDA"

    @staticmethod
    def set_backend(name: str) -> None:
        """Raise TraceError for another backend."""
        if name != "CUDA":
            _refuse(f"its backend {name}")

    @staticmethod
    def set_group_info(*_: Any) -> None:
        """Do nothing: the groups hold this information."""

    def __getattr__(self, name: str) -> NoReturn:
        """Raise TraceError for pointers and signal pads."""
        _refuse(name)


class _Block:
    """Marker on a block's storage; the block is freed with it."""


def _free(now: Simulated, nbytes: int) -> None:
    now.symmetric -= nbytes


def patches() -> list[Patch]:
    """Return the patches: owner, name, replacement."""
    names: dict[str, Any] = {
        SYMMETRIC_MEMORY: SymmetricMemory,
        USES_POOL: lambda: False,
        WORKSPACES: {},
        STORES: {},
        "get_mem_pool": functools.partial(_refuse, "get_mem_pool()"),
    }
    return [(symmetric_memory, name, value) for name, value in names.items() if hasattr(symmetric_memory, name)]


def without_fused_ops() -> AbstractContextManager[None]:
    """Refuse ops that compute with the memory of peers inside the block: their memory is known for CUDA alone."""
    names = [name for name in _FUSED if hasattr(torch.ops.symm_mem, name)]
    return implemented({name: functools.partial(_refuse, name) for name in names}, KEY, "symm_mem")

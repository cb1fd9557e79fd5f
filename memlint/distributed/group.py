"""Process groups without other processes: `torch.distributed` as the one simulated rank sees it."""

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from memlint.accelerator import state
from memlint.accelerator.device import NAME
from memlint.accelerator.private import GET_ACCELERATOR, compiled
from memlint.accelerator.private.distributed import (
    MAKE_GROUP,
    SET_TIMEOUT,
    SPLIT_INPUTS,
    default_group,
    make_group,
    num_microbatches,
    pipeline_schedule,
)
from memlint.accelerator.private.sharding import CHUNK, FakeStore, forget_shardings, fsdp_common, fsdp_init
from memlint.base.after_import import after_import
from memlint.base.patching import Patch, patched
from memlint.cuda.facade.early_names import patched_everywhere
from memlint.cuda.simulated import Simulated, simulated
from memlint.distributed import data_parallel, symmetric
from memlint.distributed.collectives import of_host_as_well
from memlint.distributed.joining import Joins
from memlint.distributed.mailbox import Mailbox, ObjectCollectives
from memlint.distributed.rank import Rank, environment
from memlint.memory.records import World

dist.Backend.backend_capability["fake"] = ["cpu", "cuda", NAME]  # the fake backend takes tensors of the virtual device

_join = distributed_c10d.init_process_group
_real_backend = distributed_c10d.get_backend
_SCRIPTED = "torch.distributed.optim"
"""Modules that TorchScript compiles on import, which has to see PyTorch's own functions then."""
_OWN_VALUES = "every other rank is taken to be like this one: what it sends has the values and sizes of this rank's"


class _AsCuda:
    """Stand-in for `torch` in a module that makes a device from a bare number, which means the GPU."""

    class _Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, torch.device)

    class device(metaclass=_Kind):  # noqa: N801 -- its name
        def __new__(cls, *args: Any) -> Any:
            return torch.device("cuda", *args) if args and isinstance(args[0], int) else torch.device(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _Groups:
    """Groups of one simulation, and the backends that the program requested."""

    def __init__(self) -> None:
        self._backends: dict[str, str] = {}
        """Backends by name of the group."""

    def join(
        self,
        backend: str | None = None,
        init_method: str | None = None,  # noqa: ARG002 -- nobody is met
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,  # noqa: ARG002
        group_name: str = "",  # noqa: ARG002
        pg_options: Any = None,
        device_id: Any = None,
        *_: Any,
        **__: Any,
    ) -> None:
        """Replace `init_process_group`."""
        now = Rank.current()
        size = world_size if world_size and world_size > 0 else now.world_size
        number = rank if rank is not None and rank >= 0 else now.number
        os.environ.update({"WORLD_SIZE": str(size), "RANK": str(number)})
        state.assume(f"rank {number} of {size} is simulated alone; {_OWN_VALUES}")
        shares = device_id is not None and _shares_splits(pg_options)
        simulated().world = World(number, size, shares)
        default = "nccl" if state.current.cuda else "gloo"
        _join("fake", timeout=timeout, world_size=size, rank=number, store=FakeStore())
        self._backends[default_group().group_name] = (backend or default).lower()

    def make(self, *args: Any, **kwargs: Any) -> Any:
        """Replace the function of PyTorch that makes every group."""
        size, rank, ranks, backend, *rest = args
        _clear_stale_shardings(rest[1] if rest[1:] else kwargs.get("group_name", ""), (size, rank, *ranks))
        if str(backend) != "fake" and rest[1:]:
            self._backends[rest[1]] = str(backend)
        kwargs |= {"backend_options": None, "device_id": None}
        return make_group(size, rank, ranks, dist.Backend("fake"), *rest, **kwargs)

    def backend(self, group: Any = None) -> str:
        """Replace `get_backend`: return the backend that the program requested."""
        own = _real_backend(group)
        world = default_group()
        names = self._backends.get((group or world).group_name) or self._backends.get(world.group_name, own)
        return dist.Backend(next((part[5:] for part in names.split(",") if part.startswith("cuda:")), names))

    def patches(self) -> list[Patch]:
        """Return the patches: owner, name, replacement."""
        functions: dict[str, Callable[..., Any]] = {
            "init_process_group": self.join,
            MAKE_GROUP: self.make,
            "get_backend": self.backend,
        }
        owners: tuple[ModuleType, ...] = (distributed_c10d, dist)
        return [(owner, name, value) for owner in owners for name, value in functions.items() if hasattr(owner, name)]


_named: dict[str, tuple[int, ...]] = {}
"""Groups by name since DTensor began to cache shardings: size, own rank and ranks."""


def _clear_stale_shardings(name: str, group: tuple[int, ...]) -> None:
    """Clear DTensor's cache of shardings, which names groups, if a name now belongs to another group."""
    if _named.setdefault(name, group) != group:
        _named.clear()
        _named[name] = group
        forget_shardings()


def _shares_splits(options: Any) -> bool:
    """Return True if NCCL lets split-off communicators share the first one's buffers: the environment decides first."""
    of_program = getattr(getattr(options, "config", None), "split_share", 0)
    return str(os.environ.get("NCCL_COMM_SPLIT_SHARE_RESOURCES", of_program)) == "1"


def _gpu_patches(rank: Rank) -> list[Patch]:
    """Return the patches while a GPU is simulated. A program that has started a process for each GPU has as many."""
    num_gpus = max(torch.cuda.device_count(), rank.per_node)
    return [
        (torch.cuda, "device_count", lambda: num_gpus),
        (torch.accelerator, "device_count", lambda: num_gpus),
        (distributed_c10d, SET_TIMEOUT, lambda *_, **__: None),
        (fsdp_init, "torch", _AsCuda()),
    ]


class _Parts(Sequence[torch.Tensor]):
    """Result of `_chunk_with_empty` of FSDP2, which uses two of its parts: views are made only of the parts used.

    The original makes a view for every rank, for every parameter.
    """

    def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._num, self._dim = tensor, num_chunks, dim

    def __len__(self) -> int:
        return self._num

    def __getitem__(self, number: Any) -> Any:
        size = self._tensor.size(self._dim)
        each = -(-size // self._num)
        start = number * each
        if start < size or number == 0:
            return self._tensor.narrow(self._dim, start, min(each, size - start))
        return self[0].new_empty(0)


def _count_microbatches(schedules: Any) -> None:
    """Note the number of microbatches that a schedule of `torch.distributed.pipelining` makes of a batch."""
    base = pipeline_schedule(schedules)
    split = getattr(base, SPLIT_INPUTS)

    @functools.wraps(split)
    def call(schedule: Any, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state.current, Simulated):
            state.current.microbatches = num_microbatches(schedule)
        return split(schedule, *args, **kwargs)

    setattr(base, SPLIT_INPUTS, call)


after_import("torch.distributed.pipelining.schedules", _count_microbatches)


def import_strategies() -> None:
    """Import modules that cannot be imported while a device is simulated."""
    importlib.import_module(_SCRIPTED)


def become(rank: Rank, box: Mailbox | None = None) -> None:
    """Let the program be `rank` until the simulation ends. Ranks that are simulated in turn share a Mailbox."""
    simulated().rank = rank
    simulated().exits.enter_context(_one_of_many(rank, box or Mailbox()))


@contextlib.contextmanager
def _one_of_many(rank: Rank, box: Mailbox) -> Iterator[None]:
    box.begin()
    objects = [
        (owner, name, f) for name, f in ObjectCollectives(box).functions().items() for owner in (dist, distributed_c10d)
    ]
    wrappers = [*data_parallel.patches(), (fsdp_common, CHUNK, _Parts)]
    patches = [*_Groups().patches(), *objects, *wrappers, *Joins(box).patches()]
    device = torch.device("cuda" if state.current.cuda else "cpu")
    patches.append((compiled, GET_ACCELERATOR, lambda *_: device))
    if state.current.cuda:
        patches += [*_gpu_patches(rank), *symmetric.patches()]
    methods: list[Patch] = [(dist.ProcessGroup, "monitored_barrier", lambda *_, **__: None)]  # of gloo's groups alone
    show_error = sys.excepthook
    everywhere = patched_everywhere(patches)
    with environment(rank), of_host_as_well(), symmetric.without_fused_ops(), everywhere, patched(methods):
        try:
            yield
        finally:
            sys.excepthook = show_error  # PyTorch puts one of its own before it in every world
            if dist.is_initialized():
                dist.destroy_process_group()

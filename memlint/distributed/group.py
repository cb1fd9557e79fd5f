"""Process groups without other processes: `torch.distributed` as the one simulated rank sees it."""

import contextlib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.fsdp._init_utils as fsdp_init
from torch.distributed import distributed_c10d
from torch.distributed.fsdp._fully_shard import _fsdp_common
from torch.distributed.tensor.debug import _clear_fast_path_sharding_prop_cache, _clear_python_sharding_prop_cache
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from memlint.accelerator import state
from memlint.accelerator.backend import empty
from memlint.accelerator.device import NAME, entry_of, is_virtual, real, scratch
from memlint.accelerator.registration import KEY, implemented
from memlint.base.after_import import after_import
from memlint.base.patching import Patch
from memlint.cuda.facade.early_names import patched_everywhere
from memlint.cuda.simulated import Simulated, simulated
from memlint.distributed import symmetric
from memlint.distributed.collectives import of_host_as_well
from memlint.distributed.joining import Joins
from memlint.distributed.mailbox import Mailbox, ObjectCollectives
from memlint.distributed.rank import Rank, environment
from memlint.memory.records import World

dist.Backend.backend_capability["fake"] = ["cpu", "cuda", NAME]  # the fake backend takes tensors of the virtual device

_join = distributed_c10d.init_process_group
_make_group = distributed_c10d._new_process_group_helper
_real_backend = distributed_c10d.get_backend
_NCCL_VERSION = (2, 29, 7)
"""NCCL of the wheels of torch 2.13: RELEASE.md of pytorch/pytorch, by its pull request 190386."""
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
        self._backends[distributed_c10d._get_default_group().group_name] = (backend or default).lower()

    def make(self, *args: Any, **kwargs: Any) -> Any:
        """Replace `_new_process_group_helper`, which makes every group."""
        size, rank, ranks, backend, *rest = args
        _clear_stale_shardings(rest[1] if rest[1:] else kwargs.get("group_name", ""), (size, rank, *ranks))
        if str(backend) != "fake" and rest[1:]:
            self._backends[rest[1]] = str(backend)
        kwargs |= {"backend_options": None, "device_id": None}
        return _make_group(size, rank, ranks, dist.Backend("fake"), *rest, **kwargs)

    def backend(self, group: Any = None) -> str:
        """Replace `get_backend`: return the backend that the program requested."""
        own = _real_backend(group)
        world = distributed_c10d._get_default_group()
        names = self._backends.get((group or world).group_name) or self._backends.get(world.group_name, own)
        return dist.Backend(next((part[5:] for part in names.split(",") if part.startswith("cuda:")), names))

    def patches(self) -> list[Patch]:
        """Return the patches: owner, name, replacement."""
        functions: dict[str, Callable[..., Any]] = {
            "init_process_group": self.join,
            "_new_process_group_helper": self.make,
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
        _clear_python_sharding_prop_cache()
        _clear_fast_path_sharding_prop_cache()


def _shares_splits(options: Any) -> bool:
    """Return True if NCCL lets split-off communicators share the first one's buffers: the environment decides first."""
    of_program = getattr(getattr(options, "config", None), "split_share", 0)
    return str(os.environ.get("NCCL_COMM_SPLIT_SHARE_RESOURCES", of_program)) == "1"


def _gpu_patches(rank: Rank) -> list[Patch]:
    """Return the patches while a GPU is simulated."""
    return [
        (torch.cuda, "device_count", lambda: rank.per_node),
        (torch.accelerator, "device_count", lambda: rank.per_node),
        (torch.cuda.nccl, "version", lambda: _NCCL_VERSION),
        (dist, "is_nccl_available", lambda: True),
        (distributed_c10d, "is_nccl_available", lambda: True),
        (distributed_c10d, "_set_pg_timeout", lambda *_, **__: None),
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


def _wrapper_patches() -> list[Patch]:
    """Return the patches for DistributedDataParallel and FSDP2."""
    return [
        (_fsdp_common, "_chunk_with_empty", _Parts),
        (DistributedDataParallel, "__init__", functools.wraps(init_wrapper)(_wrap)),
        (DistributedDataParallel, "_pre_forward", _beside_parameters(DistributedDataParallel._pre_forward)),
        (DistributedDataParallel, "_set_static_graph", _with_table_on_host(DistributedDataParallel._set_static_graph)),
        (dist, "Reducer", _with_table_on_host(dist.Reducer)),  # type: ignore[attr-defined]
    ]


init_wrapper: Callable[..., None] = DistributedDataParallel.__init__
"""PyTorch's own `DistributedDataParallel.__init__`."""
_of_wrapper = inspect.signature(init_wrapper)


def _wrap(module: Any, /, *args: Any, **kwargs: Any) -> None:
    """Replace `DistributedDataParallel.__init__`: allocate the reducer's table of used parameters on the GPU."""
    init_wrapper(module, *args, **kwargs)
    arguments = _of_wrapper.bind(module, *args, **kwargs).arguments
    vars(module)["wrapped_with"] = {name: value for name, value in arguments.items() if name not in ("self", "module")}
    if module.find_unused_parameters or module.static_graph:
        num_parameters = sum(parameter.requires_grad for parameter in module.parameters())
        num_tables = 1 if state.current.cuda else 2  # the host has both, the reducer's and that for the exchange
        module._tables_of_used = [scratch(4 * num_parameters) for _ in range(num_tables)]


def wrap_again(module: DistributedDataParallel, **options: Any) -> None:
    """Wrap a used wrapper again, as if it had been made with these options besides its own; its hooks stay."""
    hooks = {name: value for name, value in vars(module).items() if name.endswith("_hooks") or "_hooks_" in name}
    own, training = vars(module)["wrapped_with"], module.training
    for name in ("reducer", "logger", "_tables_of_used"):  # they would otherwise exist beside the new ones
        vars(module).pop(name, None)
    module.__init__(module.module, **{**own, **options})  # type: ignore[misc]
    module.train(training)
    vars(module).update(hooks)


def _beside_parameters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let C++ allocate new buckets in `function` where the parameters are, wherever the last op before it ran."""

    @functools.wraps(function)
    def call(module: Any, *args: Any, **kwargs: Any) -> Any:
        first = next(filter(is_virtual, module.parameters()), None)
        if first is not None:
            state.current.of_thread.last_host = entry_of(first).host
        return function(module, *args, **kwargs)

    return call


def _with_table_on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let `function` make the reducer's table on the host: to copy it to a GPU, C++ would ask for pinned memory."""

    def make(size: Any, dtype: Any = None, **rest: Any) -> torch.Tensor:
        if dtype is torch.int32:
            return real.empty(size, dtype=dtype, device="cpu")
        return empty(size, dtype, **rest)

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        with implemented({"empty.memory_format": make}, KEY):
            return function(*args, **kwargs)

    return call


def _count_microbatches(schedules: Any) -> None:
    """Note the number of microbatches that a schedule of `torch.distributed.pipelining` makes of a batch."""
    split = schedules._PipelineSchedule._split_inputs

    @functools.wraps(split)
    def call(schedule: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state.current, Simulated):
            state.current.microbatches = schedule._n_microbatches
        return split(schedule, *args, **kwargs)

    schedules._PipelineSchedule._split_inputs = call


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
    patches = [*_Groups().patches(), *objects, *_wrapper_patches(), *Joins(box).patches()]
    device = torch.device("cuda" if state.current.cuda else "cpu")
    patches.append((torch._C, "_get_accelerator", lambda *_: device))
    if state.current.cuda:
        patches += [*_gpu_patches(rank), *symmetric.patches()]
    show_error = sys.excepthook
    with environment(rank), of_host_as_well(), symmetric.without_fused_ops(), patched_everywhere(patches):
        try:
            yield
        finally:
            sys.excepthook = show_error  # PyTorch puts one of its own before it in every world
            if dist.is_initialized():
                dist.destroy_process_group()

"""PyTorch's private names for FSDP, DTensor and symmetric memory, apart from others as they take long to load."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch.distributed._symmetric_memory as symmetric
import torch.distributed.fsdp._init_utils as fsdp
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper
from torch.distributed.fsdp._fully_shard import _fsdp_common
from torch.distributed.tensor import debug
from torch.testing._internal.distributed import fake_pg

fsdp_init: Any = fsdp
"""The module that places the parameters of FSDP1."""
fsdp_common: Any = _fsdp_common
"""The module of what FSDP2's parts share."""
CHUNK = "_chunk_with_empty"
"""Name of the function of that module that splits a tensor into one chunk for each rank; the last may be empty."""
FakeStore = fake_pg.FakeStore
"""A store for the fake backend, which exchanges nothing."""
CheckpointWrapper: Any = checkpoint_wrapper.CheckpointWrapper
"""The module that `checkpoint_wrapper()` puts around another."""
wrapped_module: Callable[[Any], Any] = attrgetter("_checkpoint_wrapped_module")
"""Gives the module inside the wrapper."""
symmetric_memory: Any = symmetric
"""The module of symmetric memory."""
SYMMETRIC_MEMORY = "_SymmetricMemory"
"""Name of the C++ class of that module."""
USES_POOL = "_should_use_implicit_mempool"
"""Name of the function of that module that tells whether tensors come from a pool; absent from some versions."""
WORKSPACES = "_group_name_to_workspace_tensor"
"""Name of the attribute of that module with the workspace of each group; absent from some versions."""
STORES = "_group_name_to_store"
"""Name of the attribute of that module with the store of each group; absent from some versions."""


def chooses_itself(root: Any) -> bool:
    """Tells whether FSDP2 decides if a root is sharded again after its forward."""
    return bool(root._get_fsdp_state()._auto_reshard_after_forward)


def forget_shardings() -> None:
    """Let DTensor forget what it knows of shardings."""
    debug._clear_python_sharding_prop_cache()
    debug._clear_fast_path_sharding_prop_cache()

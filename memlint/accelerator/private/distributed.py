"""PyTorch's private names for groups of ranks, DistributedDataParallel and pipelines; see `private/__init__.py`."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from torch._C import _distributed_c10d
from torch.distributed import distributed_c10d
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from memlint.accelerator.private import Attribute

# --- Groups

MAKE_GROUP = "_new_process_group_helper"
"""Name of the function of `torch.distributed.distributed_c10d` through which every group is made."""
make_group: Callable[..., Any] = distributed_c10d._new_process_group_helper
"""The function of that name."""
SET_TIMEOUT = "_set_pg_timeout"
"""Name of the function of the same module that sets the timeout of a group's backend."""
default_group: Callable[[], Any] = distributed_c10d._get_default_group
"""The group of all ranks."""
group_named: Callable[[Any], Any] = distributed_c10d._resolve_process_group  # type: ignore[attr-defined]
"""The group of a name."""
work_from_future: Callable[..., Any] = _distributed_c10d._create_work_from_future  # type: ignore[attr-defined]
"""Makes what a collective returns that is not waited for."""

# --- DistributedDataParallel

PRE_FORWARD = "_pre_forward"
"""Name of the function of `DistributedDataParallel` that runs before each forward."""
pre_forward: Callable[..., Any] = DistributedDataParallel._pre_forward
"""The function of that name."""
SET_STATIC_GRAPH = "_set_static_graph"
"""Name of the function of the same class that tells the reducer that every step uses the same parameters."""
set_static_graph: Callable[..., Any] = DistributedDataParallel._set_static_graph
"""The function of that name."""
FIND_SYNC = "_check_global_requires_backward_grad_sync"
"""Name of the function of the same class that finds out whether some rank reduces gradients."""
find_sync: Any = DistributedDataParallel._check_global_requires_backward_grad_sync
"""The function of that name."""
FIND_COMMON_RANK = "_find_common_rank"
"""Name of the function of the same class that agrees on the rank that had the most batches."""
find_common_rank: Any = DistributedDataParallel._find_common_rank
"""The function of that name."""
comm_hooks: Attribute = attrgetter("_comm_hooks")
"""The communication hooks of a wrapper."""
COUNT_NOT_JOINED = "_get_num_nonjoined_procs"
"""Name of the function of `Join` that asks how many ranks still have batches."""
count_not_joined: Any = Join._get_num_nonjoined_procs
"""The function of that name."""
is_enabled: Callable[[Any], bool] = attrgetter("_enable")
"""Tells whether a `Join` joins anything."""
group_of: Attribute = attrgetter("_process_group")
"""The group of a `Join`."""

# --- torch.distributed.pipelining, which is loaded when a program does

pipeline_schedule: Attribute = attrgetter("_PipelineSchedule")
"""The base class of schedules, of the module `schedules`."""
SPLIT_INPUTS = "_split_inputs"
"""Name of the function of that class that splits a batch into microbatches."""
num_microbatches: Callable[[Any], int] = attrgetter("_n_microbatches")
"""The number of microbatches that a schedule makes of a batch."""

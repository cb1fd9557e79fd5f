"""What a script sees of the processes beside it: the variables that torchrun sets, and a group in which nobody else is.

One rank is simulated. Its collectives move nothing, and what wrappers such as DistributedDataParallel allocate for the
exchange is counted only as far as is said under Assumed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from memlint.accelerator import state

if TYPE_CHECKING:
    from memlint.base.patching import Patch
    from memlint.script.spec import Script

_IN_PLACE = "all_reduce broadcast reduce barrier monitored_barrier broadcast_object_list"
"""Collectives that leave what this rank has."""
_GATHERS = "all_gather all_gather_into_tensor reduce_scatter reduce_scatter_tensor all_to_all_single"


class _Work:
    """A collective that is over."""

    def wait(self, *_: object) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> torch.futures.Future[None]:
        future: torch.futures.Future[None] = torch.futures.Future()
        future.set_result(None)
        return future


def set_variables(script: Script) -> None:
    """Set what torchrun sets for the first of the script's ranks, and what a machine with one GPU has."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    if script.ranks is not None:
        world = str(script.ranks)
        os.environ.update(RANK="0", LOCAL_RANK="0", GROUP_RANK="0", ROLE_RANK="0", WORLD_SIZE=world)
        os.environ.update(LOCAL_WORLD_SIZE=world, ROLE_WORLD_SIZE=world, TORCHELASTIC_RUN_ID="none")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")


def patches() -> list[Patch]:
    """What is replaced while the script runs: owner, name, replacement."""
    replaced: list[Patch] = [
        (DistributedDataParallel, "__init__", _wrap),
        (DistributedDataParallel, "forward", lambda self, *args, **kwargs: self.module(*args, **kwargs)),
        (DistributedDataParallel, "train", torch.nn.Module.train),
        (DistributedDataParallel, "no_sync", lambda _self: contextlib.nullcontext()),
    ]
    if dist.is_available():
        from torch.distributed import distributed_c10d  # noqa: PLC0415 -- not every build has it

        for owner in (dist, distributed_c10d):
            replaced.append((owner, "init_process_group", _join_group))
            replaced += [(owner, name, _kept) for name in _IN_PLACE.split()]
            replaced += [(owner, name, _copied) for name in _GATHERS.split()]
    return replaced


def _join_group(*_args: Any, **_options: Any) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415 -- only where it is asked for

    world = int(os.environ.get("WORLD_SIZE", "1"))
    text = "collectives move nothing, and NCCL's own memory is not counted"
    state.assume(f"rank 0 of {world} is simulated alone: {text}")
    _real_join(backend="fake", store=FakeStore(), rank=0, world_size=world)


_real_join: Callable[..., None] = dist.init_process_group if dist.is_available() else lambda **_: None


def _kept(*_args: Any, async_op: bool = False, **_options: Any) -> _Work | None:
    return _Work() if async_op else None


def _copied(output: Any, source: Any, *_args: Any, async_op: bool = False, **_options: Any) -> _Work | None:
    """Collectives with an output: this rank's part of it is what it gives."""
    outputs = output if isinstance(output, list) else [output]
    sources = source if isinstance(source, list) else [source]
    if outputs[0].shape == sources[0].shape:
        outputs[0].copy_(sources[0])
    return _Work() if async_op else None


def _wrap(
    self: Any, module: torch.nn.Module, *_args: Any, gradient_as_bucket_view: bool = False, **_options: Any
) -> None:
    torch.nn.Module.__init__(self)
    self.module = module
    self.require_backward_grad_sync = True
    self.device = next((parameter.device for parameter in module.parameters()), None)
    text = "DistributedDataParallel: one rank, with buckets as large as the gradients"
    if gradient_as_bucket_view:
        text += ", which are views of them"
    state.assume(text)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if trained and not gradient_as_bucket_view:
        self._buckets = [torch.empty_like(parameter, requires_grad=False) for parameter in trained]

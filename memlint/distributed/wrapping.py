"""Spreads a model of one GPU over the ranks of a world, with PyTorch's own wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from memlint.accelerator import state
from memlint.cuda.simulated import Simulated
from memlint.distributed.group import become
from memlint.distributed.rank import Rank
from memlint.tracing.repeated_modules import is_inside, repeated

if TYPE_CHECKING:
    from memlint.distributed.strategy import Strategy


def join(world_size: int, rank: int) -> None:
    """Let the program be this rank where a device is simulated, and it is none yet."""
    if isinstance(state.current, Simulated) and Rank.current() != Rank(world_size, rank):
        become(Rank(world_size, rank))


def replicated(model: torch.nn.Module, device: str) -> torch.nn.Module:
    """The model as DistributedDataParallel calls it."""
    return DistributedDataParallel(model, device_ids=[0] if device == "cuda" else None)


def sharded(model: torch.nn.Module, strategy: Strategy, device: str, gathered: torch.dtype | None) -> str:
    """Shard the parameters of `model`, which is on the host, over all ranks; what was done, as a person says it.

    Each of its repeated blocks is a unit, and what lies around them. `gathered` is the dtype that parameters are
    gathered in, if it is not their own; gradients are reduced in float32 then.
    """
    size = dist.get_world_size()
    if strategy.replicas > 1:
        sizes = (strategy.replicas, size // strategy.replicas)
        mesh = init_device_mesh(device, sizes, mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh(device, (size,))
    options: dict[str, Any] = {"mesh": mesh}
    if not strategy.reshards:
        options["reshard_after_forward"] = False
    if gathered is not None:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=gathered, reduce_dtype=torch.float32)
    blocks = _blocks(model)
    for path in blocks:
        fully_shard(model.get_submodule(path), **options)
    fully_shard(model, **options)
    units = f"each of the {len(blocks)} blocks {blocks[0]} to {blocks[-1]}" if blocks else "the whole model"
    dtype = f", with parameters gathered in {str(gathered).removeprefix('torch.')}" if gathered else ""
    return f"fully_shard: {units} is a unit{dtype}"


def _blocks(model: torch.nn.Module) -> list[str]:
    """Paths of the outermost repeated modules, in their order."""
    modules = [(path, type(module).__name__) for path, module in model.named_modules()]
    paths = {path for group in repeated(modules) for path in group}
    outermost = {path for path in paths if not any(path != outer and is_inside(path, outer) for outer in paths)}
    return [path for path, _kind in modules if path in outermost]

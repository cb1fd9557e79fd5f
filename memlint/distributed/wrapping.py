"""Wrapping of a single-GPU model for the ranks of a world, with PyTorch's own wrappers."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import fsdp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from memlint.accelerator import state
from memlint.cuda.simulated import Simulated
from memlint.distributed.group import become
from memlint.distributed.mailbox import Mailbox
from memlint.distributed.rank import Rank
from memlint.distributed.tensor_plans import cut_layers
from memlint.memory.repeated_modules import is_inside, repeated
from memlint.targets.strategy import Strategy


def join(world_size: int, rank: int, box: Mailbox | None = None) -> None:
    """Make the program this rank if a device is simulated and it has no rank yet; `box` as for `become`."""
    if isinstance(state.current, Simulated) and state.current.rank is None:
        become(Rank(world_size, rank), box)


def replicated(model: torch.nn.Module, device: str) -> torch.nn.Module:
    """Wrap the model in DistributedDataParallel."""
    # memlint: ignore[MEM605] as most programs construct it; the rule says what the option saves
    return DistributedDataParallel(model, device_ids=[0] if device == "cuda" else None)


def spread(model: torch.nn.Module, strategy: Strategy, device: str, gathered: torch.dtype | None) -> str:
    """Shard the parameters of `model`, which is on the host, over all ranks; return a description for people.

    For tensor parallel its layers are cut by its own plan. For sharding each of its repeated blocks is a unit, and the
    rest of the model is another. `gathered` is the dtype in which parameters are gathered, if it is not their own;
    gradients are then reduced in float32. Raises UsageError for a model without a plan.
    """
    size = dist.get_world_size()
    if strategy.tensor > 1:
        sizes = (size // strategy.tensor, strategy.tensor)
        meshes = init_device_mesh(device, sizes, mesh_dim_names=("data", "tensor"))
        text = cut_layers(model, meshes["tensor"])
        if not strategy.is_sharded:
            return text
        return f"{text}; {_sharded(model, strategy, meshes['data'], gathered)}"
    if strategy.replicas > 1:
        sizes = (strategy.replicas, size // strategy.replicas)
        mesh = init_device_mesh(device, sizes, mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh(device, (size,))
    return _sharded(model, strategy, mesh, gathered)


def _sharded(model: torch.nn.Module, strategy: Strategy, mesh: DeviceMesh, gathered: torch.dtype | None) -> str:
    options: dict[str, Any] = {"mesh": mesh}
    if not strategy.reshards:
        options["reshard_after_forward"] = False
    if gathered is not None:
        options["mp_policy"] = fsdp.MixedPrecisionPolicy(param_dtype=gathered, reduce_dtype=torch.float32)
    units = blocks(model)
    for path in units:
        fsdp.fully_shard(model.get_submodule(path), **options)
    fsdp.fully_shard(model, **options)
    text = f"each of the {len(units)} blocks {units[0]} to {units[-1]}" if units else "the whole model"
    dtype = f", with parameters gathered in {str(gathered).removeprefix('torch.')}" if gathered else ""
    return f"fully_shard: {text} is a unit{dtype}"


def blocks(model: torch.nn.Module) -> list[str]:
    """Return the paths of the outermost repeated modules, in their order."""
    modules = [(path, type(module).__name__) for path, module in model.named_modules()]
    paths = {path for group in repeated(modules) for path in group}
    outermost = {path for path in paths if not any(path != outer and is_inside(path, outer) for outer in paths)}
    return [path for path, _kind in modules if path in outermost]

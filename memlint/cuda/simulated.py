"""The simulation of one device, as CUDA's kernels and the facade see it."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memlint.accelerator import state
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device

if TYPE_CHECKING:
    from memlint.cuda.workspaces import Workspaces


@dataclass(slots=True, kw_only=True)
class Simulated(state.State):
    """What `memlint.cuda.session.virtual_device` installs."""

    device: Device
    allocator: AllocatorSettings
    """Settings of the caching allocator: what the program is told of reserved memory depends on them."""
    workspaces: Workspaces
    """What libraries hold on the GPU."""
    exits: ExitStack = field(default_factory=ExitStack)
    """What ends with the simulation."""
    collectives: list[Any] = field(default_factory=list)
    """What ranks exchanged so far, as `tracing.records.Collective`."""
    rank: Any = None
    """Which of several the program is, as `distributed.rank.Rank`; None: it is alone."""
    world: Any = None
    """What process group the program joined, as `tracing.records.World`."""
    microbatches: int = 1
    """Into how many parts a pipeline's schedule cuts a batch."""
    symmetric: int = 0
    """Bytes of symmetric memory, which other GPUs read and write."""
    reads_allocator: bool = False
    """Whether the program has asked for figures of the caching allocator."""
    streams_made: Counter[int] = field(default_factory=Counter)
    """How many streams of each priority the program made, by its distance from 0."""


def simulated() -> Simulated:
    """The simulation that runs; only for code that runs in one."""
    current = state.current
    assert isinstance(current, Simulated), "a device is simulated"
    return current

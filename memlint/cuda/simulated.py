"""The simulation of one device, as CUDA's kernels and the facade see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from memlint.accelerator import state
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.records import Assumption, Frame

if TYPE_CHECKING:
    from memlint.cuda.workspaces import Workspaces


MISSING: Any = object()
"""The value of an attribute that its owner inherits or does not have."""


class Replaced(NamedTuple):
    """An attribute that the facade replaces."""

    owner: Any
    name: str
    original: Any
    """`MISSING` if the owner itself has none of that name."""
    value: Any


@dataclass(slots=True, kw_only=True)
class Simulated(state.State):
    """The state of one simulation, which `memlint.cuda.session.virtual_device` installs."""

    device: Device
    allocator: AllocatorSettings
    """Settings of the caching allocator, by which the program's questions about reserved memory are answered."""
    workspaces: Workspaces
    """Workspaces that libraries hold on the GPU."""
    exits: ExitStack = field(default_factory=ExitStack)
    """Callbacks and contexts that end with the simulation."""
    collectives: list[Any] = field(default_factory=list)
    """Collectives that ranks have exchanged so far, as `tracing.records.Collective`."""
    rank: Any = None
    """Rank of the program among several, as `distributed.rank.Rank`; None if it runs alone."""
    world: Any = None
    """Process group that the program joined, as `tracing.records.World`."""
    microbatches: int = 1
    """Number of parts into which a pipeline's schedule cuts a batch."""
    symmetric: int = 0
    """Bytes of symmetric memory, which other GPUs read and write."""
    reads_allocator: bool = False
    """True if the program has read figures of the caching allocator."""
    facade: Sequence[Replaced] = ()
    """All that is replaced in PyTorch while the program runs."""
    compiles: bool = False
    """True if compilations that the program asks for are simulated; otherwise they are left out."""
    compiles_in_parts: bool = False
    """True if of these whatever cannot be simulated runs eagerly, frame by frame, in place of an error."""
    compilation: Any = None
    """Those that were asked for, as `compile.simulation.Compilation`; None as long as there is none."""
    about_compilation: dict[Assumption, None] = field(default_factory=dict)
    """Places that compiled code leaves to Python, and why; and the pool that it takes memory from."""
    graph_breaks: dict[Frame, None] = field(default_factory=dict)
    """Lines of these places at which a graph ends."""
    num_pools: int = 0
    """Number of pools that the program made for CUDA graphs."""
    captures: bool = False
    """True while a CUDA graph is captured."""
    replayed: Callable[[], object] = lambda: None
    """Called when a CUDA graph is replayed."""
    streams_made: Counter[int] = field(default_factory=Counter)
    """Number of streams of each priority that the program made, by the priority's distance from 0."""


def simulated() -> Simulated:
    """Return the current simulation; only for code that runs in one."""
    current = state.current
    assert isinstance(current, Simulated), "a device is simulated"
    return current

"""The simulation of one device, as CUDA's kernels and the facade see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlint.accelerator import state
from memlint.cuda.allocator.settings import AllocatorSettings
from memlint.cuda.devices import Device

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


def simulated() -> Simulated:
    """The simulation that runs; only for code that runs in one."""
    current = state.current
    assert isinstance(current, Simulated), "a device is simulated"
    return current

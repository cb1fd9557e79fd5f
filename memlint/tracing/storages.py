"""What a program takes, without what a Trace says about it: little more work than the steps themselves."""

from __future__ import annotations

from typing import NamedTuple

from memlint.cuda.allocator.settings import AllocatorSettings
from memlint.cuda.devices import Device
from memlint.cuda.session import virtual_device
from memlint.cuda.simulated import simulated
from memlint.tracing.recorder import Program, collected_between_steps
from memlint.tracing.records import Doubt


class Storages(NamedTuple):
    """The storages of a Trace, under the same numbers."""

    sizes: tuple[int, ...]
    """Bytes of each."""
    events: tuple[int, ...]
    doubts: tuple[Doubt, ...]
    """As in Trace."""
    workspaces: frozenset[int]
    """Those of libraries, which belong to whoever needs them first."""


def storages_of(
    program: Program, device: Device, allocator: AllocatorSettings | None = None, *, num_steps: int = 2
) -> Storages:
    """Set `program` up and run `num_steps` steps of it on a simulated `device`; raises what the program raises."""
    with collected_between_steps() as collect, virtual_device(device, allocator) as ledger:
        program.setup()
        for _ in range(num_steps):
            program.step()
            collect()
        ledger.freeze()
        return Storages(
            sizes=tuple(birth.nbytes for birth in ledger.births),
            events=tuple(ledger.events),
            doubts=tuple(Doubt(number, low, high) for number, (low, high) in ledger.doubts.items()),
            workspaces=simulated().workspaces.numbers,
        )

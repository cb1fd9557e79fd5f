"""One simulation: inside its `with` block the process sees the requested device."""

import contextlib
from collections.abc import Iterator

import torch

from memlint.accelerator import backend, engine, preexisting_tensors, sparse, sparse_kernels, sparse_products, state
from memlint.accelerator.ledger import Ledger
from memlint.accelerator.private import standing_in_script
from memlint.base.errors import TraceError
from memlint.base.patching import Patch, patched
from memlint.cuda import autocast, hidden
from memlint.cuda.facade import (
    control_flow,
    early_names,
    factories,
    interchange,
    placement,
    queries,
    random_state,
    reading,
    serialization,
)
from memlint.cuda.kernels import (
    attention,
    attention_cudnn,
    composites,
    convolution,
    encoder,
    host,
    quantized,
    recurrent,
)
from memlint.cuda.simulated import MISSING, Replaced, Simulated
from memlint.cuda.versions import takes_oldest_block_first
from memlint.cuda.workspaces import Workspaces
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device

__all__ = ["virtual_device"]


@contextlib.contextmanager
def virtual_device(
    device: Device,
    allocator: AllocatorSettings | None = None,
    *,
    for_program: bool = True,
    compiles: bool = False,
    compiles_in_parts: bool = False,
) -> Iterator[Ledger]:
    """Show the process `device` and record every storage in the given Ledger.

    Inside, PyTorch code runs as it would on that device, but nothing is computed. `allocator` are the settings behind
    the program's readings of reserved memory; PyTorch's defaults if None. If only kernels run and no program, functions
    that modules imported from PyTorch before may stay. If it `compiles`, what the program asks `torch.compile` for is
    simulated (`memlint.compile`), and otherwise left out; if that is `compiles_in_parts`, each frame that cannot be
    compiled runs eagerly. Raises TraceError when nested.
    """
    outer = state.current
    if isinstance(outer, Simulated):
        raise TraceError(
            "a virtual device is active already", "Leave the first `virtual_device` block before a second."
        )
    running = Simulated(
        ledger=Ledger(oldest_first=takes_oldest_block_first(device)),
        cuda=device.is_cuda,
        takes_temporaries=True,
        host_scratch=None if device.is_cuda else host.HostScratch(),
        observers=outer.observers,
        assume=outer.assume,
        calls=outer.calls,
        device=device,
        allocator=allocator or AllocatorSettings(),
        workspaces=Workspaces(device),
        compiles=compiles,
        compiles_in_parts=compiles_in_parts,
    )
    with contextlib.ExitStack() as exits:
        exits.enter_context(torch.autograd.set_multithreading_enabled(False))
        exits.callback(autocast.clear_cache)
        exits.enter_context(state.installed(running))
        if device.is_cuda:
            exits.enter_context(backend.cuda_factories())
        replaced = early_names.patched_everywhere if for_program else patched
        patches = _patches(running)
        running.facade = [
            Replaced(owner, name, vars(owner).get(name, MISSING), value) for owner, name, value in patches
        ]
        exits.enter_context(replaced(patches))
        exits.enter_context(standing_in_script((each.value, each.original) for each in running.facade))
        exits.enter_context(running.exits)
        preexisting_tensors.begin()
        yield running.ledger


def _patches(running: Simulated) -> list[Patch]:
    """Patches of the names by which the program finds the device."""
    patches = placement.patches(running.device) + engine.patches()
    for each in (control_flow, factories, reading, serialization, interchange):
        patches += each.patches()
    patches += autocast.patches(running)
    patches += random_state.patches(on_host=not running.cuda)
    return patches + (queries.patches(running) if running.cuda else [])


_REGISTER = (
    *(attention, attention_cudnn, backend, composites, convolution, encoder, hidden, quantized, recurrent),
    *(sparse_kernels, sparse_products),
)
"""Modules whose import registers kernels."""

sparse.register()

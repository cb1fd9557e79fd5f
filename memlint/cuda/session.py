"""One simulation: the process sees the device asked for until the `with` block ends."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from memlint.accelerator import guard, nested, registration, sparse, sparse_kernels, sparse_products
from memlint.accelerator.device import State
from memlint.accelerator.ledger import Ledger
from memlint.base.errors import TraceError
from memlint.cuda import autocast, hidden
from memlint.cuda.facade import interchange as leaving
from memlint.cuda.facade import program as facade
from memlint.cuda.facade import queries
from memlint.cuda.facade import serialization as saving
from memlint.cuda.hidden.workspaces import Workspaces
from memlint.cuda.kernels import (
    attention,
    convolution,
    encoder,
    recurrent,
)
from memlint.cuda.kernels import (
    composites as kernels,
)
from memlint.cuda.kernels import (
    host as cpu_kernels,
)
from memlint.cuda.kernels import (
    packed_sequences as packing,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.cuda.devices import Device

__all__ = ["virtual_device"]


@contextlib.contextmanager
def virtual_device(device: Device) -> Iterator[Ledger]:
    """Show the process `device` and record every storage in the Ledger given.

    Inside, PyTorch code runs as it would on that device, but nothing is computed. Raises TraceError when nested.
    """
    if State.device is not None:
        raise TraceError(
            "a virtual device is active already", "Leave the first `virtual_device` block before a second."
        )
    ledger = Ledger()
    State.device, State.cuda, State.ledger = device, device.is_cuda, ledger
    State.workspaces = Workspaces(device) if device.is_cuda else None
    State.host_scratch = None if device.is_cuda else cpu_kernels.HostScratch()
    replaced: list[tuple[Any, str, Any]] = []
    multithreading = torch.autograd.is_multithreading_enabled()
    torch.autograd.set_multithreading_enabled(False)
    exits = contextlib.ExitStack()
    try:
        if device.is_cuda:
            exits.enter_context(registration.cuda_factories())
        wanted = facade.patches(device) + saving.patches() + leaving.patches() + guard.patches()
        if device.is_cuda:
            wanted += queries.patches(device) + autocast.patches()
        for owner, name, value in wanted:
            replaced.append((owner, name, owner.__dict__.get(name, _MISSING)))
            setattr(owner, name, value)
        yield ledger
    finally:
        for owner, name, value in reversed(replaced):
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        exits.close()
        autocast.clear_cache()
        torch.autograd.set_multithreading_enabled(multithreading)
        State.device, State.cuda, State.ledger, State.host_scratch = None, True, Ledger(), None
        State.workspaces = None


_MISSING = object()
_REGISTER = (
    registration,
    kernels,
    convolution,
    attention,
    encoder,
    hidden,
    nested,
    packing,
    recurrent,
    sparse_kernels,
    sparse_products,
)
"""Modules that are imported for the kernels they register."""

sparse.register()

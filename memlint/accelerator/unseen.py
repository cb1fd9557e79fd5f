"""Kernels that run for their own sake: for the values or the geometry of what they return."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from memlint.accelerator import state
from memlint.accelerator.ledger import Ledger


@contextmanager
def unseen() -> Iterator[None]:
    """Run kernels inside the block that take no memory of the simulation, and that nobody listens to."""
    now = state.current
    before = now.ledger, now.observers, now.assume, now.calls
    now.ledger, now.observers, now.assume, now.calls = Ledger(), [], lambda _text: None, None
    try:
        with torch.no_grad():
            yield
    finally:
        now.ledger, now.observers, now.assume, now.calls = before

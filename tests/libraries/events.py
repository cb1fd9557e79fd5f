"""What happens on a simulated GPU, as bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from memlint.accelerator import state
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

if TYPE_CHECKING:
    from memlint.accelerator.ledger import Ledger


class Seen:
    """What was seen since `begin`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.assumptions: list[str] = []
        self.begin()

    def begin(self) -> None:
        """Look at what happens from now on."""
        self._first = len(self._ledger.events)

    @property
    def events(self) -> list[int]:
        """Bytes of births, negative for deaths, without cuBLAS workspaces."""
        births, events = self._ledger.births, self._ledger.events[self._first :]
        return [births[n].nbytes if n >= 0 else -births[~n].nbytes for n in events]

    @property
    def held(self) -> int:
        """Bytes more than at the beginning."""
        return sum(self.events)

    @property
    def peak(self) -> int:
        """Bytes more than at the beginning at most."""
        most = now = 0
        for nbytes in self.events:
            now += nbytes
            most = max(most, now)
        return most


@contextlib.contextmanager
def simulated(gpu: str = "a100-80gb") -> Iterator[Seen]:
    """A simulated GPU."""
    with virtual_device(device_named(gpu)) as ledger:
        seen = Seen(ledger)
        state.current.assume = seen.assumptions.append
        yield seen


def on_gpu(*shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = True) -> torch.Tensor:
    """A tensor there."""
    return torch.empty(shape, dtype=dtype, device="cuda", requires_grad=grad)

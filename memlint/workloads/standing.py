"""Where models stand while they are looked at: on the virtual device."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from memlint.cuda.devices import device_named

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def standing_device(gpu: str) -> Iterator[str]:
    """Name of the device to move models to, `cuda` or `cpu`, for as long as the GPU called `gpu` is simulated."""
    # Importing it changes PyTorch for the whole process, which a step on a real device must not see.
    from memlint.cuda.session import virtual_device  # noqa: PLC0415

    device = device_named(gpu)
    with virtual_device(device):
        yield "cuda" if device.is_cuda else "cpu"

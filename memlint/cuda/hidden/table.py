"""The table of hidden memory: the ops that take some, how much, and the source of each formula."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from memlint.accelerator.device import NAME, entry_of, real_device_of, scratch
from memlint.accelerator.kernel import Temporaries, enter_temporaries
from memlint.accelerator.ledger import Entry
from memlint.cuda.hidden import cub
from memlint.cuda.simulated import simulated

Tensor = torch.Tensor


class Row(NamedTuple):
    """Memory that one kernel takes for itself."""

    ops: tuple[str, ...]
    what: str
    source: str
    versions: str
    """PyTorch versions that the formula was read from or recorded with."""
    devices: str
    """Devices whose kernels take it: gpu, host, or any."""


ROWS: list[Row] = []


def hidden(
    *ops: str, source: str, versions: str = "2.10 to 2.13", what: str = "", devices: str = "gpu"
) -> Callable[[Temporaries], Temporaries]:
    """Enter the decorated generator in the table for `ops`; `what`, or else its docstring, describes the memory.

    `devices` is gpu, host, or any if PyTorch's code is the same for both.
    """

    def enter(function: Temporaries) -> Temporaries:
        ROWS.append(Row(ops, what or " ".join((function.__doc__ or "").split()), source, versions, devices))
        for op in ops:
            for host in (False, True):
                if devices in ("any", "host" if host else "gpu"):
                    enter_temporaries(op, function, host=host)
        return function

    return enter


def copy_of(x: Tensor, itemsize: int | None = None) -> Entry:
    """Allocate a dense copy of `x`, in its own dtype unless `itemsize` says otherwise."""
    return scratch(x.numel() * (itemsize or x.element_size()))


def on_host(x: Tensor) -> bool:
    """Return True if `x` is in the host's memory."""
    return real_device_of(x).type != NAME or entry_of(x).host


def contiguous(x: Tensor) -> Entry | None:
    """Allocate the copy that a kernel makes of an operand that is not contiguous; None if it needs none."""
    return None if x.is_contiguous() else copy_of(x)


def sorting_storage(num_items: int, key: int, value: int, bits: int | None = None) -> int:
    """Bytes that CUB takes to sort on the simulated GPU: `cub.radix_sort`."""
    return cub.radix_sort(num_items, key, value, bits, hopper=simulated().device.capability >= (9, 0))


Steps = Iterator[None]
"""A row of the table: a generator that yields once, where the kernel makes its outputs.

Memory that it allocates and binds to no name is freed at once.
"""

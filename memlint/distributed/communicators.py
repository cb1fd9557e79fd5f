"""What NCCL's communicators hold on a GPU, outside of PyTorch's allocator: an interval, from what others measured.

NCCL makes one communicator for each process group that a rank uses, at its first collective. By group: 544 MiB with two
GPUs and 688 MiB with more (NVIDIA/nccl issue 964, four A100 with NVLink, all groups of one process in turn). At least:
484 MiB with one rank on an RTX 3090 (NVIDIA/nccl pull request 2366), of which up to the 300 MiB of its CUDA context may
not be NCCL's. At most: 1.6 GB with one communicator and 6 GB with three (NVIDIA/nccl issue 864), contexts included.
Messages from rank to rank and all-to-all connect each pair of GPUs of a machine with all channels: 1.06 GB before and
4.34 GB after the first all-to-all on eight H100 (NVIDIA/nccl issue 1685), which is 3.28 GB for seven peers.

Not counted: gloo, which works on the host; NCCL's settings of the environment, such as NCCL_BUFFSIZE and
NCCL_MAX_NCHANNELS; symmetric memory.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from memlint.base.grouping import grouped
from memlint.cuda.devices import Device
from memlint.memory.estimate import Interval
from memlint.tracing.records import Collective

_LOW = (484 - 300) << 20
_PAIR, _MORE = 544 << 20, 688 << 20
_HIGH = 2_000_000_000
_PEER = 3_280_000_000 // 7
_PEERS = 7
"""GPUs of a machine beside the own one."""
_CONNECTING = ("all_to_all", "send", "recv")


class Communicator(NamedTuple):
    """What NCCL holds for a process group."""

    size: int
    """Ranks of the group."""
    kinds: tuple[str, ...]
    """Its collectives, in the order of their first calls."""

    @property
    def nbytes(self) -> Interval:
        """Bytes on each GPU."""
        peers = min(self.size - 1, _PEERS) if "all_to_all" in self.kinds else 0
        if not peers and any(kind in _CONNECTING for kind in self.kinds):
            peers = min(self.size - 1, 2)  # a stage of a pipeline speaks with those before and after it
        likely = _PAIR if self.size <= 2 else _MORE
        return Interval(_LOW, likely + peers * _PEER, _HIGH + peers * _PEER)


def communicators(collectives: Sequence[Collective]) -> list[Communicator]:
    """Those of a rank with these collectives."""
    groups = grouped(((each.group, each.size), each.kind) for each in collectives if each.backend == "nccl")
    return [Communicator(size, tuple(dict.fromkeys(kinds))) for (_, size), kinds in groups.items()]


def beside(device: Device, collectives: Sequence[Collective]) -> Device:
    """`device` with these communicators beside the CUDA context."""
    held = [each.nbytes for each in communicators(collectives)]
    if not device.is_cuda or not held:
        return device
    low, likely, high = map(sum, zip(*held, strict=True))
    return replace(
        device,
        context_low=device.context_low + low,
        context_nbytes=device.context_nbytes + likely,
        context_high=device.context_high + high,
    )

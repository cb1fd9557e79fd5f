"""Memory of NCCL's communicators on a GPU, outside PyTorch's allocator: intervals, by NCCL's version, GPU and use.

NCCL makes one communicator for each process group that a rank uses, at its first collective, and connects it with the
ranks that an algorithm needs. Sources are NVIDIA/nccl at v2.29.3-1, and measurements (issues are NVIDIA/nccl's):

* A connection to a rank of the same machine takes, in each channel 9,633,792 bytes to receive (LL 524,288, LL128
  4,915,200, Simple 4,194,304: src/init.cc) and a page to send, in pages of 2 MiB (src/transport/p2p.cc): 10,485,760
  and 2,097,152 in the log of issue 1685. Where the sender's buffer is read (A100) it is 6 MiB each.
* Channels: 24 with NVSwitch (A100: nccl-tests issue 100; H100: issues 1259, 2094; GB200: below), 16 between machines
  (issues 1357, 1453), 12 of a V100 (twice the 6 of issue 713), 2 through PCIe (nccl-tests issue 307).
* A ring has the rank before and the rank after. An all-reduce has trees as well, which inside of a machine are chains
  with the same neighbours in both directions, and on Hopper and Blackwell multicast buffers (NVLS): 16 channels (24 on
  Blackwell), two ways, 1 MiB for each GPU (src/transport/nvls.cc). All-to-all, gather, scatter and messages have 32
  channels for each rank of the machine with NVSwitch, and 2 through PCIe or between machines (src/graph/paths.cc).
* NCCL 2.22 and later make the connections that a collective needs; earlier versions made all at once, and NVLS had 2
  MiB more for each of its buffers (src/init.cc and src/transport/nvls.cc at v2.21.5-1). PyTorch has had such an NCCL
  since 2.7.

Measured: 8 GB200 with NCCL 2.30 576 MiB of connections, which is 24 x 2 x 12 (sgl-project/sglang pull request 30908).
8 H100 1.06 GB before and 4.34 GB after an all-to-all (issue 1685): before it 179 MiB are no connections, as of one
rank on an RTX 3090, whose 484 MiB have up to 300 of its CUDA context (pull request 2366); those of messages leave 461
MB of what came after. 4 A100 in 2023: 544 MiB between two and 688 between more (issue 964), whose difference is 12
channels, so that 400 MiB are no connections. At most 1.6 GB for one communicator and 6 GB for three, contexts included
(issue 864).

`ncclCommSplit` with shared resources (off unless `split_share` or NCCL_COMM_SPLIT_SHARE_RESOURCES asks for it, in
src/init.cc) takes from the first communicator what that is connected with.

Not counted: gloo, which works on the host; NCCL's sizes from the environment, such as NCCL_BUFFSIZE and
NCCL_MAX_NCHANNELS.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from memlint.base.grouping import grouped
from memlint.base.version import installed_torch
from memlint.memory.context import with_context
from memlint.memory.devices import Device
from memlint.memory.estimate import Interval
from memlint.memory.records import Collective

SYMMETRIC = "symmetric memory"
"""Backend name of symmetric memory, whose size a rank reports (`memlint.distributed.symmetric`)."""
_LAZY_SINCE = (2, 7)
"""The first PyTorch whose NCCL connects on demand."""
_CHANNELS = {(7, 0): 12, (8, 0): 24, (9, 0): 24, (10, 0): 24}
"""Channels by capability of GPUs with NVLink; others have those of PCIe."""
_CHANNELS_OF_PCIE = 2
_MOST_BETWEEN_MACHINES = 16
_CHANNELS_OF_MESSAGES = 32
_WAY = 6 << 20
"""Bytes of a channel's connection in one direction."""
_NVLS = {(9, 0): 16 * 2 << 20, (10, 0): 24 * 2 << 20}
"""Bytes of multicast buffers for each GPU of the group, by capability."""
_NVLS_AT_ONCE = 3
_BASE, _BASE_AT_ONCE = 184 << 20, 400 << 20
_HIGH = 2_000_000_000
_PEERS = 7
"""GPUs of a machine besides the rank's own."""
_OF_MESSAGES = 3_280_000_000 - _PEERS * _CHANNELS_OF_MESSAGES * 2 * _WAY
_TO_ALL = ("all_to_all", "gather", "scatter")
_TO_ONE = ("send", "recv")
_REDUCING = ("all_reduce", "barrier")


class Communicator(NamedTuple):
    """Memory that NCCL holds for a process group."""

    size: int
    """Number of ranks in the group."""
    kinds: tuple[str, ...]
    """Its collectives, in the order of their first calls."""
    is_shared: bool
    """True if it shares what it can with the communicator of the first group."""
    nbytes: Interval
    """Bytes on each GPU."""


class _Use(NamedTuple):
    """Use of a group on certain GPUs."""

    device: Device
    first: Collective
    kinds: tuple[str, ...]

    @property
    def is_lazy(self) -> bool:
        return (self.device.torch or installed_torch()) >= _LAZY_SINCE

    @property
    def channels(self) -> int:
        of_links = _CHANNELS.get(self.device.capability, _CHANNELS_OF_PCIE)
        return of_links if self.first.within_node else min(of_links, _MOST_BETWEEN_MACHINES)

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of each connection, by its key: groups that share resources have equal connections once."""
        way = self.channels * _WAY
        before, after = self.first.neighbours
        parts: dict[str, int] = {}
        if self.first.size > 1 and not (self.is_lazy and set(self.kinds) <= {*_TO_ALL, *_TO_ONE}):
            parts |= {f"from {before}": way, f"to {after}": way}
            if not self.is_lazy or set(self.kinds) & {*_REDUCING}:
                parts |= {f"from {after}": way, f"to {before}": way}
        multicast = _NVLS.get(self.device.capability, 0) if self.first.size > 2 and self.first.within_node else 0
        if multicast and ("all_reduce" in self.kinds or not self.is_lazy):
            parts[f"NVLS of {self.first.size}"] = self.first.size * multicast * (1 if self.is_lazy else _NVLS_AT_ONCE)
        if peers := self.peers:
            has_links = self.first.within_node and self.device.capability in _CHANNELS
            channels = _CHANNELS_OF_MESSAGES if has_links else _CHANNELS_OF_PCIE
            parts[f"messages to {peers}"] = peers * channels * 2 * _WAY + _OF_MESSAGES
        return parts

    @property
    def peers(self) -> int:
        """Number of ranks of its machine with which it is connected beside rings and trees."""
        if set(self.kinds) & {*_TO_ALL}:
            return min(self.first.size - 1, _PEERS)
        # a stage of a pipeline exchanges with those before and after it
        return min(self.first.size - 1, 2) if set(self.kinds) & {*_TO_ONE} else 0


def communicators(device: Device, collectives: Sequence[Collective]) -> list[Communicator]:
    """Return the communicators of a rank with these collectives on such a GPU."""
    if not device.is_cuda:
        return []
    groups = grouped((each.group, each) for each in collectives if each.backend == "nccl")
    shared: dict[str, int] = {}
    done = []
    for first, *others in groups.values():
        use = _Use(device, first, tuple(dict.fromkeys(each.kind for each in (first, *others))))
        is_shared = first.shares and bool(shared)
        own = sum(use.parts.values())
        base = _BASE if use.is_lazy else _BASE_AT_ONCE
        nbytes = Interval(_BASE, base + own, _HIGH + own if use.peers else max(_HIGH, base + own))
        if is_shared:
            nbytes = Interval(0, sum(each for name, each in use.parts.items() if name not in shared), own)
        done.append(Communicator(first.size, use.kinds, is_shared, nbytes))
        if first.shares:
            shared |= use.parts
    return done


def symmetric(collectives: Sequence[Collective]) -> int:
    """Return the most bytes of symmetric memory that a rank with these collectives has at a time."""
    return max((each.nbytes_out for each in collectives if each.backend == SYMMETRIC), default=0)


def beside(device: Device, collectives: Sequence[Collective]) -> Device:
    """Return `device` with the context of the process, and these communicators and symmetric memory beside it."""
    device = with_context(device)
    held = [each.nbytes for each in communicators(device, collectives)]
    if nbytes := symmetric(collectives):
        held.append(Interval(nbytes, nbytes, nbytes))
    if not held:
        return device
    low, likely, high = map(sum, zip(*held, strict=True))
    return replace(
        device,
        context_low=device.context_low + low,
        context_nbytes=device.context_nbytes + likely,
        context_high=device.context_high + high,
    )

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


def communicators(collectives: Sequence[Collective]) -> list[str]:
    """Names of the groups for which a rank with these collectives has a communicator of NCCL."""
    return sorted({each.group for each in collectives if each.backend == "nccl"})


def held(collectives: Sequence[Collective]) -> Interval:
    """Bytes of all communicators of a rank with these collectives."""
    low = likely = high = 0
    for name in communicators(collectives):
        own = [each for each in collectives if each.group == name]
        size = own[0].size
        peers = min(size - 1, _PEERS) if any(each.kind == "all_to_all" for each in own) else 0
        if not peers and any(each.kind in _CONNECTING for each in own):
            peers = min(size - 1, 2)  # a stage of a pipeline speaks with those before and after it
        low += _LOW
        likely += (_PAIR if size <= 2 else _MORE) + peers * _PEER
        high += _HIGH + peers * _PEER
    return Interval(low, likely, high)


def beside(device: Device, collectives: Sequence[Collective]) -> Device:
    """`device` with these communicators beside the CUDA context."""
    low, likely, high = held(collectives)
    if not device.is_cuda:
        return device
    return replace(
        device,
        context_low=device.context_low + low,
        context_nbytes=device.context_nbytes + likely,
        context_high=device.context_high + high,
    )

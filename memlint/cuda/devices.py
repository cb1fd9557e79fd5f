"""The GPUs memlint knows, and the host.

`total_nbytes` is `torch.cuda.get_device_properties(0).total_memory`: what is printed on the board less what the driver
keeps. It moves by up to 0.3 % from one driver to the next, and is known here as precisely as its source says it:
PyTorch prints the properties of a device in whole MiB, and in out-of-memory messages in GiB with two decimals. Where
drivers differ, the figure of the newer ones is used.

`context_nbytes` is a guess, and so are its bounds: what NVML shows for a process before its first tensor depends on the
driver, on the CUDA version and on which kernels were loaded. Points it rests on: 256 MiB on an RTX 3090 with torch 2.7
(invoke-ai/InvokeAI issue 9413), 426 MiB on an RTX 6000 Ada with torch 2.10 (unslothai/unsloth-zoo pull request 1053),
612 MiB beside another process on an H200, about 300 MiB as PyTorch's own figure since CUDA 11.7
(pytorch/pytorch issue 107667).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from memlint.base.errors import UsageError

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as `torch.cuda.get_device_properties` describes it, or the host; sizes in bytes."""

    name: str
    """As typed after `--gpu`."""
    title: str
    total_nbytes: int
    """0 for the host, whose memory is not known."""
    capability: tuple[int, int]
    num_sms: int
    threads_per_sm: int
    """Resident threads of a multiprocessor: CUDA C++ Programming Guide, technical specifications by capability."""
    context_low: int
    context_nbytes: int
    context_high: int
    """The CUDA context as NVML shows it: at least, most likely, at most."""

    @property
    def is_cuda(self) -> bool:
        """Whether it is a GPU."""
        return self.capability > (0, 0)


def _mib(low: int, likely: int, high: int) -> tuple[int, int, int]:
    return low * _MIB, likely * _MIB, high * _MIB


def _gib(text: str) -> int:
    """Bytes of a capacity as out-of-memory messages give it, in GiB with two decimals."""
    return int(Decimal(text) * 2**30)


_DEVICES = (
    # Printed properties, Colab and Kaggle: 15095 MiB (14.74 GiB); older drivers 15102 and 15109.
    Device("t4", "NVIDIA T4", 15_095 * _MIB, (7, 5), 40, 1024, *_mib(100, 160, 400)),
    # Printed properties, Tesla V100-SXM2-16GB: 16160 MiB.
    Device("v100-16gb", "NVIDIA V100 16 GB", 16_160 * _MIB, (7, 0), 80, 2048, *_mib(250, 320, 700)),
    # Out-of-memory messages: 31.73 GiB; printed properties of a Tesla V100-PCIE-32GB: 32510 MiB (31.75).
    Device("v100-32gb", "NVIDIA V100 32 GB", _gib("31.73"), (7, 0), 80, 2048, *_mib(250, 320, 700)),
    # Printed properties in the TorchCodec documentation, torch 2.15 development build: 22587 MiB.
    Device("a10g", "NVIDIA A10G", 22_587 * _MIB, (8, 6), 80, 1536, *_mib(200, 270, 600)),
    # Out-of-memory messages: 39.49 and 39.50 GiB; others 39.38 to 39.59.
    Device("a100-40gb", "NVIDIA A100 40 GB", _gib("39.49"), (8, 0), 108, 2048, *_mib(350, 430, 800)),
    # total_memory in bytes of an A100 80GB PCIe, driver 595 (3 MiB less after a reboot); messages: 79.25, older 79.15.
    Device("a100-80gb", "NVIDIA A100 80 GB", 85_097_971_712, (8, 0), 108, 2048, *_mib(350, 430, 800)),
    # Out-of-memory messages, Google Cloud g2 machines and Colab: 22.03 GiB.
    Device("l4", "NVIDIA L4", _gib("22.03"), (8, 9), 58, 1536, *_mib(200, 270, 600)),
    # Out-of-memory messages: 44.39 and 44.40 GiB; printed properties of 2024: 45589 MiB (44.52).
    Device("l40s", "NVIDIA L40S", _gib("44.39"), (8, 9), 142, 1536, *_mib(350, 430, 800)),
    # Out-of-memory messages: 23.56 GiB; printed properties of older drivers: 24259 MiB (23.69).
    Device("rtx3090", "NVIDIA GeForce RTX 3090", _gib("23.56"), (8, 6), 82, 1536, *_mib(200, 270, 600)),
    # Out-of-memory messages: 23.52 GiB (driver 595); older 23.64.
    Device("rtx4090", "NVIDIA GeForce RTX 4090", _gib("23.52"), (8, 9), 128, 1536, *_mib(350, 430, 800)),
    # Out-of-memory messages: 31.36 GiB; others 31.34 to 31.39.
    Device("rtx5090", "NVIDIA GeForce RTX 5090", _gib("31.36"), (12, 0), 170, 1536, *_mib(350, 480, 900)),
    # Printed properties, H100 80GB HBM3 with torch 2.7, CUDA 12.8: 81089 MiB (79.19 GiB in messages).
    Device("h100-80gb", "NVIDIA H100 80 GB", 81_089 * _MIB, (9, 0), 132, 2048, *_mib(400, 520, 900)),
    # Printed properties: 143156 MiB; messages: 139.80 GiB.
    Device("h200", "NVIDIA H200", 143_156 * _MIB, (9, 0), 132, 2048, *_mib(400, 520, 900)),
    # Printed properties: 182631 MiB, another 182642; messages: 178.35 GiB.
    Device("b200", "NVIDIA B200", 182_631 * _MIB, (10, 0), 148, 2048, *_mib(450, 600, 1000)),
    Device("cpu", "the host", 0, (0, 0), 0, 0, 0, 0, 0),
)

CATALOGUE: Final[Mapping[str, Device]] = MappingProxyType({device.name: device for device in _DEVICES})
DEFAULT_DEVICE: Final = "a100-80gb"

_ALIASES = {
    "a100": "a100-80gb",
    "a100-40g": "a100-40gb",
    "a100-80g": "a100-80gb",
    "h100": "h100-80gb",
    "v100": "v100-16gb",
    "3090": "rtx3090",
    "4090": "rtx4090",
    "5090": "rtx5090",
}


def device_named(name: str) -> Device:
    """Look up a Device by name or alias, whatever the case; spaces and underscores read as dashes.

    Raises UsageError for a name that is not in the catalogue.
    """
    key = "-".join(name.lower().replace("_", " ").split()).removeprefix("nvidia-")
    key = key if key in CATALOGUE else key.replace("rtx-", "rtx")
    device = CATALOGUE.get(_ALIASES.get(key, key))
    if device is None:
        close = difflib.get_close_matches(key, [*CATALOGUE, *_ALIASES], n=1)
        known = ", ".join(CATALOGUE)
        raise UsageError(f"no GPU named {name!r}", f"Did you mean {close[0]}?" if close else f"Choose one of: {known}.")
    return device
